"""What a dataset stores."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from penstock._lab.inside import stored
from penstock._lab.inside.drive import Stored


class Data:
    def __init__(self, length, held):
        self.length = length
        self.items = list(held)
        self.array = np.zeros((len(self.items), 2))
        self.tensor = torch.zeros(4)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.items[index]


class Endless(Data):
    def __getitem__(self, index):
        return index


class Broken(Data):
    def __getitem__(self, index):
        raise ValueError("no")


def test_the_length_of_what_it_holds():
    assert stored.sizes(Data(3, range(5))) == {"dataset.items": 5, "dataset.array": 5, "dataset.tensor": 4}


def test_an_array_that_changed_is_named():
    data = Data(3, range(5))
    before = stored.contents(data)
    data.array += 1
    data.tensor[0] = 2

    assert stored.changed(before, data) == ["dataset.array", "dataset.tensor"]


def test_a_short_list_that_changed_is_named():
    data = Data(3, range(5))
    before = stored.contents(data)
    data.items[1] = 77

    assert stored.changed(before, data) == ["dataset.items"]


def test_what_stays_or_is_replaced_is_not_named():
    data = Data(3, range(5))
    before = stored.contents(data)
    assert stored.changed(before, data) == []

    data.array = data.array + 1
    assert stored.changed(before, data) == []


def test_a_dataset_that_ends_where_it_says():
    assert stored.probe(Data(5, range(5))) == {"reach": 5, "past": []}


def test_a_dataset_that_goes_on_past_its_length():
    found = stored.probe(Data(3, range(50)))

    assert found["reach"] == 50
    assert len(set(found["past"])) == 4


def test_a_dataset_that_is_one_short():
    found = stored.probe(Data(4, range(5)))

    assert found["reach"] == 5
    assert len(found["past"]) == 1


def test_a_dataset_without_end():
    assert stored.probe(Endless(3, range(3)))["reach"] is None


def test_whatever_a_dataset_raises_stays_inside():
    assert stored.probe(Broken(3, range(3))) == {}


class Gain(Data):
    """Makes what it stores louder, by chance."""

    def __getitem__(self, index):
        self.tensor *= 1 + torch.rand(1) + np.random.rand()
        return self.tensor + index


class Counts(Data):
    """Keeps statistics, and returns by chance."""

    def __getitem__(self, index):
        self.tensor += 1
        return torch.rand(3) + index


def test_samples_made_of_what_changes_drift_and_others_by_chance_do_not():
    loud, counts = Gain(3, range(5)), Counts(3, range(5))
    loud.tensor += 1
    assert stored.drifts(loud)
    assert not stored.drifts(counts)
    assert not stored.drifts(Broken(3, range(5)))


def test_within_torchs_own_datasets_the_users_is_asked():
    data = Data(3, range(5))
    around = Subset(ConcatDataset([data, data]), [0, 1])

    assert stored.own(around) is data
    assert {**stored.probe(around), "past": None} == {
        "part": "Data", "part_length": 3, "reach": 5, "past": None,
    }  # fmt: skip
    assert "part" not in stored.probe(data)
    assert stored.own(TensorDataset(torch.zeros(3))) is None


class Windows(Data):
    """Windows of a recording: the last one is short, and not counted."""

    def __getitem__(self, index):
        if index > 3:
            raise IndexError(index)
        return self.array[index * 2 : index * 2 + 2]


def test_what_is_left_of_a_recording_is_no_sample():
    assert stored.probe(Windows(3, range(7))) == {"reach": 3, "past": []}


class Late(Gain):
    """Opens what it stores when it is first asked."""

    def __init__(self, length, held):
        super().__init__(length, held)
        del self.tensor
        self.opened = None

    def __getitem__(self, index):
        if self.opened is None:
            self.opened = [torch.ones(2) for _ in self.items]
        self.opened[index] *= 1 + torch.rand(1)
        return self.opened[index]


class Steady(Late):
    def __getitem__(self, index):
        return super().__getitem__(index) * 0 + index


def test_what_is_opened_only_for_the_first_sample_is_asked_about_afterwards():
    def asked(dataset):
        looking = Stored(SimpleNamespace(num_workers=0, dataset=dataset))
        dataset[0]
        looking.look()
        found = looking.past()
        return found["mutated"], found["drifts"]

    mutated, drifts = asked(Late(3, range(5)))
    assert drifts
    assert mutated == ["dataset.opened[0]"]
    assert not asked(Steady(3, range(5)))[1]
