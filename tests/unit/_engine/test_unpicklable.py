"""The path to the part that cannot be pickled."""

from __future__ import annotations

import functools
import io
import pickle
import threading
from types import SimpleNamespace

import cloudpickle
import pytest
import torch

from penstock._engine.unpicklable import find_unpicklable


class Holder:
    def __init__(self, **parts):
        self.__dict__.update(parts)

    def method(self):
        pass


class Stateful(Holder):
    def __getstate__(self):
        return {"inside": self.hidden}


class Broken(Holder):
    def __getstate__(self):
        raise RuntimeError("no state")


def generator():
    return (x for x in ())


def top_level():
    pass


@pytest.mark.parametrize(
    ("value", "path", "what"),
    [
        (generator(), "batch", "is a generator"),
        ({"x": [1, generator()]}, "batch['x'][1]", "is a generator"),
        ((1, (2, generator())), "batch[1][1]", "is a generator"),
        (Holder(a=1, b=Holder(c=threading.Lock())), "batch.b.c", "is a lock"),
        (SimpleNamespace(f=generator()), "batch.f", "is a generator"),
        ([Stateful(hidden=generator(), ignored=generator())], "batch[0].inside", "is a generator"),
        (Broken(x=generator()), "batch.x", "is a generator"),
        ({"f": lambda: 1}, "batch['f']", "is a function"),
        (functools.partial(top_level, generator()), "batch", "is a partial"),
        (functools.partial(lambda: 1), "batch.func", "is a function"),
        (Holder(x=generator()).method, "batch.__self__.x", "is a generator"),
        (torch.ones(2, requires_grad=True) * 2, "batch", "is a Tensor"),
        ({1: (torch.zeros(2), generator())}, "batch[1][1]", "is a generator"),
        ([io.StringIO(), io.BytesIO(), memoryview(b"")], "batch[2]", "is a memoryview"),
    ],
)
def test_the_guilty_part_is_named_by_its_path(value, path, what):
    assert find_unpicklable(value, "batch") == (path, what)


def test_an_article_fits_its_noun():
    class Odd:
        def __reduce__(self):
            raise TypeError

    assert find_unpicklable(Odd(), "x") == ("x", "is an Odd")


def test_a_variable_of_a_closure_is_named():
    lock = threading.Lock()

    def transform():
        return lock

    assert find_unpicklable([transform], "dataset", cloudpickle.dumps) == (
        "dataset[0] (its variable lock)",
        "is a lock",
    )


def test_a_global_of_a_class_that_goes_by_value_is_named(monkeypatch):
    class Reader:
        def read(self):
            return rows  # noqa: F821 - a global, set below

    monkeypatch.setattr(Reader, "__module__", "__main__")
    monkeypatch.setitem(globals(), "rows", generator())

    def dumps(value):
        if isinstance(value, Reader):
            raise TypeError
        pickle.dumps(value)

    assert find_unpicklable(Reader(), "dataset", dumps) == (
        "dataset (the global rows that its class uses)",
        "is a generator",
    )


def test_a_variable_that_is_not_yet_assigned_is_no_trouble():
    def outer():
        def inner():
            return later

        if not outer:
            later = 1
        return inner

    def fail(value):
        raise TypeError

    assert find_unpicklable(outer(), "f", fail)[0].startswith("f")


def test_a_cycle_comes_to_an_end():
    ring: list = []
    ring += [ring, generator()]
    path, _ = find_unpicklable(ring, "batch")
    assert path == "batch" + "[0]" * 12


def test_a_wide_object_comes_to_an_end():
    assert find_unpicklable([0] * 1000 + [generator()], "batch") == ("batch", "is a list")


def test_what_pickles_is_not_looked_into():
    seen = []

    def dumps(value):
        seen.append(value)
        if not isinstance(value, int):
            raise TypeError

    find_unpicklable([1, [2]], "x", dumps)
    assert seen == [1, [2], 2]


def test_an_attribute_that_raises_is_no_trouble():
    class Lazy:
        def __getattr__(self, name):
            raise RuntimeError("not loaded")

    find_unpicklable(Lazy(), "batch", lambda value: pickle.dumps(generator()))
