from __future__ import annotations

import functools
import logging
import mmap
import multiprocessing
import os
import random
import sqlite3
import sys
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch

from penstock._lab.inside import kinds, mainfile, pickling, things
from penstock._lab.inside.mending.trees import swap
from penstock._lab.inside.walk import is_users, reachable, walk
from penstock._lab.inside.weighing import weigh

LOCK = threading.Lock()


class Holder:
    def __init__(self, **values):
        self.__dict__.update(values)

    def method(self):
        with LOCK:
            return


LOGGER = logging.getLogger("things")


class Registry:
    opened: ClassVar[dict] = {}

    @classmethod
    def get(cls, name):
        return cls.opened[name]


def read(name, index):
    LOGGER.debug("reading %s", name)
    return Registry.get(name), index


class Reader:
    def __getitem__(self, index):
        return read("a", index)


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Hostile:
    def __getattr__(self, name):
        raise AssertionError(name)

    @property
    def trap(self):
        raise AssertionError("a property was called")


def found(dataset, *, method="fork", **others):
    fields = {"start_method": method, "settings": {"num_workers": 2}, "dataset": {}}
    things.add(fields, SimpleNamespace(dataset=dataset, **others))
    return {thing["path"]: thing for thing in fields["things"]}


def test_a_walk_names_the_way_to_everything():
    inner = Slotted([1, {"a": (2,)}])
    paths = [path for path, _, _ in walk(Holder(x=inner, f=functools.partial(print, 3)), "dataset")]
    assert {"dataset.x", "dataset.x.value", "dataset.x.value[1]['a'][0]", "dataset.f.func"} <= set(paths)


def test_a_walk_shows_each_object_once_and_runs_no_code_of_the_users():
    loop = Holder(h=Hostile())
    loop.me = loop
    assert [path for path, _, _ in walk(loop, "dataset")] == ["dataset", "dataset.h"]


def test_a_walk_leaves_out_what_our_own_observer_holds():
    ours = type("Observer", (), {"__module__": "penstock._lab.inside.observer", "told": lambda self: None})()
    ours.held = [1]

    assert [path for path, *_ in walk(Holder(hook=ours.told), "dataset")] == [
        "dataset",
        "dataset.hook",
        "dataset.hook.__self__",
    ]


def test_a_walk_is_bounded():
    assert len(list(walk(list(range(10**6)), "x", most=50))) <= 50


@pytest.fixture
def registered(monkeypatch):
    """Something that a class keeps, which a function uses, which a dataset calls."""

    def put(value):
        monkeypatch.setitem(Registry.opened, "a", value)

    return put


def test_what_a_class_keeps_is_found_through_those_who_use_it(tmp_path, registered):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        registered(archive)
        assert found(Reader())["Registry.opened['a']"]["kind"] == "archive"


def test_what_a_class_keeps_can_be_replaced(registered):
    registered(old := random.Random(1))
    new = random.Random(2)
    assert swap(Reader(), lambda value: value is old, lambda _: new) == 1
    assert Registry.opened["a"] is new


def test_the_inside_of_a_logger_is_nobodys_business():
    handler = logging.StreamHandler()
    LOGGER.addHandler(handler)
    try:
        paths = [path for path, _, _ in reachable(Reader(), "dataset")]
    finally:
        LOGGER.removeHandler(handler)
    assert [path for path in paths if "LOGGER" in path] == [f"{__name__}.LOGGER"]


def test_what_is_built_in_is_not_the_users():
    assert [is_users(code) for code in (Reader, read, dict, zipfile.ZipFile)] == [True, True, False, False]


def test_kinds(tmp_path):
    zipfile.ZipFile(tmp_path / "a.zip", "w").close()
    with (
        Path(__file__).open() as text,
        zipfile.ZipFile(tmp_path / "a.zip") as archive,
        sqlite3.connect(":memory:") as database,
        mmap.mmap(-1, 64) as mapping,
    ):

        def local():
            return None

        class Local:
            pass

        of = {
            "open-file": text,
            "archive": archive,
            "mapping": mapping,
            "database": database,
            "lambda": lambda: None,
            "local-function": local,
            "local-class": Local,
            "lock": threading.RLock(),
            "mp-lock": multiprocessing.Lock(),
            "generator": (x for x in ()),
            "rng": np.random.default_rng(),
            "torch-generator": torch.Generator(),
            "module": sys,
            "thread-local": threading.local(),
            "thread": threading.Thread(),
        }
        assert {name: kinds.kind_of(value) for name, value in of.items()} == {name: name for name in of}
        assert kinds.kind_of(random.Random()) == "rng"
        for plain in (3, "x", torch.zeros(2), np.zeros(2), random.SystemRandom(), print, Holder):
            assert kinds.kind_of(plain) == ""
    database.close()


def test_things_are_named_by_their_path_with_globals_that_methods_use():
    seen = found(Holder(inner=Holder(rng=random.Random(1))))
    assert seen["dataset.inner.rng"]["kind"] == "rng"
    assert seen[f"{__name__}.LOCK"]["kind"] == "lock"


def test_an_open_file_is_told_with_its_offset_and_not_its_parts(tmp_path):
    (tmp_path / "x").write_bytes(b"12345")
    with (tmp_path / "x").open("rb") as file:
        file.seek(3)
        seen = found(Holder(file=file))
    assert seen["dataset.file"]["detail"] == f"{tmp_path / 'x'} at 3"
    assert seen["dataset.file"]["mode"] == "rb"
    assert "dataset.file.raw" not in seen


def test_an_offset_that_somebody_moves_is_seen(tmp_path):
    (tmp_path / "x").write_bytes(b"12345")
    with (tmp_path / "x").open("rb", buffering=0) as file:
        fields = {"start_method": "fork", "settings": {"num_workers": 2}, "dataset": {}}
        (handle,) = things.add(fields, SimpleNamespace(dataset=Holder(file=file)))
        assert not handle.moved()
        file.read(1)
        assert handle.moved()


def test_nothing_is_pickled_while_workers_are_forked():
    class Refusing:
        def __reduce__(self):
            raise AssertionError("pickled")

    assert "pickles" not in found(Holder(x=Refusing()))["dataset.x"]


def test_under_spawn_what_refuses_is_told_with_what_pickle_says():
    seen = found(Holder(fn=lambda: None, rng=random.Random(1)), method="spawn")
    assert seen["dataset.fn"]["pickles"] is False
    assert "Can't" in seen["dataset.fn"]["error"]
    assert seen["dataset.rng"]["pickles"] is True


class WithState(Holder):
    def __getstate__(self):
        return {}


def test_what_getstate_leaves_out_refuses_nothing():
    seen = found(WithState(lock=threading.Lock()), method="spawn")
    assert seen["dataset.lock"]["pickles"] is True


class Refuses:
    def __reduce__(self):
        raise TypeError("not me")


def test_what_no_walk_knows_is_found_by_trying():
    seen = found(Holder(deep=[Refuses()]), method="spawn")
    assert seen["dataset.deep[0]"]["error"] == "TypeError: not me"


def test_a_short_list_of_objects_that_hold_many_is_large_too():
    nested = [Holder(atoms=[Slotted((1.5, 2.5)) for _ in range(100)]) for _ in range(70)]
    count, nbytes = weigh(nested)
    assert 70 * 400 <= count <= 70 * 600
    assert nbytes > 70 * 100 * 100
    assert found(Holder(molecules=nested))["dataset.molecules"]["kind"] == "large-list"


def test_large_lists_are_weighed():
    seen = found(Holder(names=[f"name {i}" for i in range(20_000)], rows=[torch.zeros(1)] * 20_000))
    assert seen["dataset.names"]["count"] == 20_000
    assert 1_000_000 < seen["dataset.names"]["nbytes"] < 3_000_000
    assert "dataset.rows" not in seen  # tensors: their memory is not counted page by page


def test_pickling_for_a_trial_moves_no_tensor_to_shared_memory():
    value = torch.zeros(1000)
    assert pickling.dumps(Holder(x=value)) > 4000
    assert not value.is_shared()
    assert pickling.refusal(Holder(x=value, lock=multiprocessing.Lock())) == ""


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("class Data: pass", False),
        ("if __name__ == '__main__':\n    class Data: pass", True),
        ("if 1:\n    class Data: pass", False),
        ("from x import Data", False),
        ("def main():\n    class Data: pass", True),
    ],
)
def test_a_class_under_the_guard_of_the_main_script_is_lost_to_workers(text, lost, tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text(text)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__=str(script)))
    kind = type("Data", (), {"__module__": "__main__"})
    assert mainfile.is_lost(kind) is lost


def test_a_lock_that_is_held_is_said_so():
    lock = threading.Lock()
    with lock:
        held = found(Holder(lock=lock))["dataset.lock"]
    free = found(Holder(lock=lock))["dataset.lock"]

    assert (held["detail"], free["detail"]) == ("held", "")


def exclusive(guard):
    def wrap(function):
        @functools.wraps(function)
        def inner(*arguments):
            with guard:
                return function(*arguments)

        return inner

    return wrap


def test_what_a_decorator_keeps_for_a_method_is_reached_and_can_be_replaced():
    lock, free = threading.Lock(), threading.Lock()

    class Client:
        @exclusive(lock)
        def get(self):
            return "tile"

    held = Holder(client=Client())

    assert [path for path, value, _ in reachable(held, "dataset") if value is lock] == [
        f"{Client.get.__qualname__}.<guard>"
    ]
    assert swap(held, lambda value: value is lock, lambda _: free) == 1
    with lock:
        assert held.client.get() == "tile"


def recording(path):
    """As libraries have it that open files in C: an object with a name, and a descriptor that nobody sees."""
    fd = os.open(path, os.O_RDONLY)
    methods = {"read": lambda _, count: os.read(fd, count), "close": lambda _: os.close(fd)}
    kind = type("Recording", (), {"__module__": "json", "name": str(path), **methods})
    return kind()


def test_a_file_that_a_library_has_opened_out_of_sight_is_an_open_file_with_its_offset(tmp_path):
    path = tmp_path / "take.flac"
    path.write_bytes(bytes(64))
    take = recording(path)
    loader = torch.utils.data.DataLoader(Holder(take=take), batch_size=2)
    fields = {"start_method": "fork", "settings": {"num_workers": 2}}

    (handle,) = things.add(fields, loader)

    (thing,) = (each for each in fields["things"] if each["path"] == "dataset.take")
    assert (thing["kind"], thing["detail"]) == ("open-file", f"{path} at 0")
    take.read(8)
    assert handle.moved()
    take.close()
    assert things.add({**fields, "things": []}, loader) == []
