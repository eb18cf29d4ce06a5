from __future__ import annotations

import os
import threading
from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from penstock._lab.inside.mending import of_datasets, of_samples, trees
from penstock._lab.inside.mends import ALL, Mends

Pair = namedtuple("Pair", "a b")


class Holder:
    def __init__(self, **values):
        self.__dict__.update(values)


def test_mends_are_listed_by_their_names():
    assert all(kind.name == name for name, kind in ALL.items())


def test_leaves_change_and_containers_stay():
    tree = {"a": [1, (2, Pair(3, 4))]}
    assert trees.change_leaves(tree, lambda value: value * 10) == {"a": [10, (20, Pair(30, 40))]}


def test_the_attributes_of_an_object_change_in_a_copy_that_may_hold_itself():
    sample = Holder(x=1, parts=[2])
    sample.own = sample
    twice = trees.change_leaves(
        [sample, sample], lambda value: value * 10 if isinstance(value, int) else value
    )
    assert (twice[0].x, twice[0].parts, twice[0] is twice[1]) == (10, [20], True)
    assert (sample.x, sample.parts) == (1, [2])


def test_a_part_is_replaced_wherever_it_is_held():
    lock = threading.Lock()
    data = Holder(lock=lock, inner=Holder(locks=[lock, 1], by_name={"x": lock}))
    assert trees.swap(data, lambda value: value is lock, lambda _: "free") == 3
    assert (data.lock, data.inner.locks, data.inner.by_name) == ("free", ["free", 1], {"x": "free"})


def test_parts_are_found_beside_an_object_that_hides_its_class(tmp_path):
    np.savez(tmp_path / "bundle.npz", x=np.zeros(3))
    with np.load(tmp_path / "bundle.npz") as bundle:
        lock = threading.Lock()
        data = Holder(bundle=bundle, lock=lock)
        assert trees.swap(data, lambda value: value is lock, lambda _: "free") == 1
    assert data.lock == "free"


def test_a_packed_dictionary_answers_as_the_old_one():
    old = {f"key {number}": number for number in range(200)}
    new = of_datasets.PackedDict(old)
    assert dict(new) == old
    assert "key 200" not in new


def test_packed_tensors_come_out_as_they_went_in():
    mend = of_samples.PackTensors()
    batch = {"x": torch.arange(6).view(2, 3), "y": [torch.ones(2), "text"], "z": torch.tensor(4)}
    back = mend.arrived(mend.made(batch))
    assert torch.equal(back["x"], batch["x"])
    assert torch.equal(back["y"][0], batch["y"][0])
    assert (back["y"][1], back["z"].item()) == ("text", 4)


def test_odd_samples_give_way_to_the_usual_form():
    samples = [torch.zeros(3), None, torch.zeros(4), torch.zeros(3)]
    assert [len(sample) for sample in of_samples.SkipOdd().together(samples)] == [3, 3, 3, 3]


def test_exits_are_refused_only_while_a_sample_is_made():
    plain = os._exit

    def leave(_index):
        os._exit(3)

    with pytest.raises(RuntimeError, match="_exit was called"):
        of_samples.NoExits().get(leave, 0)
    assert os._exit is plain


def test_a_reopened_descriptor_has_an_offset_of_its_own(tmp_path):
    (tmp_path / "x").write_bytes(b"12345")
    with (tmp_path / "x").open("rb", buffering=0) as file:
        other = os.dup(file.fileno())  # one description, as after a fork
        os.lseek(other, 2, os.SEEK_SET)
        assert of_datasets._reopen(file.fileno())
        assert file.tell() == 2
        os.lseek(other, 4, os.SEEK_SET)
        assert file.read(1) == b"3"
        os.close(other)


@pytest.mark.parametrize("said", [3, 10, 16])
def test_the_end_of_a_dataset_is_found_whatever_its_length_says(said):
    class Data:
        def __len__(self):
            return said

        def __getitem__(self, index):
            return list(range(10))[index]

    assert of_datasets.find_end(Data()) == 10


def test_a_dataset_without_end_has_none():
    class Endless:
        def __len__(self):
            return 5

        def __getitem__(self, index):
            return index

    assert of_datasets.find_end(Endless()) is None


def test_what_collate_raises_is_mended_too():
    change = SimpleNamespace(mends=("stop-iteration-raises",))
    mends = Mends(SimpleNamespace(plan=SimpleNamespace(change=change)))

    assert mends.collate(list, (1, 2)) == [1, 2]
    with pytest.raises(RuntimeError, match="StopIteration was raised"):
        mends.collate(lambda samples: next(iter(samples)), ())


def test_a_stream_that_ends_its_process_raises_instead():
    def stream():
        yield 1
        raise SystemExit

    mend, samples = of_samples.NoExits(), stream()

    assert mend.next_of(samples) == 1
    with pytest.raises(RuntimeError, match="SystemExit was raised"):
        mend.next_of(samples)
