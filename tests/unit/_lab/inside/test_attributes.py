"""Attributes that persistent workers do not see."""

from __future__ import annotations

import types
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from penstock._lab.inside import attributes


def changed(loader):
    return attributes.changed(loader).all


class Inner:
    def __init__(self, level):
        self.level = level


class Data:
    def __init__(self):
        self.epoch = 0
        self.rate = float("nan")
        self.transform = len
        self.files = ["a", "b"]
        self.inner = Inner(1)
        self.labels = np.zeros(6)
        self.weights = torch.ones(2, 3).T


@pytest.fixture
def loader():
    made = SimpleNamespace(dataset=Data(), collate_fn=None, _iterator=None, persistent_workers=True)
    assert changed(made) == {}  # the first pass remembers
    made._iterator = object()
    return made


def test_nothing_changed(loader):
    assert changed(loader) == {}


def test_a_number(loader):
    loader.dataset.epoch = 3

    assert changed(loader) == {"dataset.epoch": "0 → 3"}


def test_a_number_of_an_object_that_it_holds(loader):
    loader.dataset.inner.level = 2

    assert changed(loader) == {"dataset.inner.level": "1 → 2"}


def test_a_function(loader):
    loader.dataset.transform = abs

    assert changed(loader) == {"dataset.transform": "len → abs"}


def test_a_list_that_grew_and_one_that_was_replaced(loader):
    loader.dataset.files.append("c")
    assert changed(loader)["dataset.files"].startswith("list of 2 with the checksum")
    assert "→ list of 3 with the checksum" in changed(loader)["dataset.files"]

    loader.dataset.files = ["x", "y"]
    assert "→ list of 2 with the checksum" in changed(loader)["dataset.files"]


def test_an_element_of_a_long_list_that_was_replaced(loader):
    loader.dataset.grades = [{"grade": 0, "views": [1.0]} for _ in range(500)]
    loader._iterator = None
    assert changed(loader) == {}
    loader._iterator = object()

    loader.dataset.grades[444]["views"][0] = 2.5

    assert list(changed(loader)) == ["dataset.grades"]


def test_an_object_that_was_replaced_is_told_without_its_parts(loader):
    loader.dataset.inner = Inner(7)

    assert list(changed(loader)) == ["dataset.inner"]


def test_workers_that_are_started_again_have_it_all(loader):
    loader.dataset.epoch = 3
    loader._iterator = None

    assert changed(loader) == {}


def test_an_array_that_was_changed_in_place(loader):
    loader.dataset.labels[3] = 1.0
    assert list(changed(loader)) == ["dataset.labels"]

    loader.dataset.labels[3] = 0.0
    loader.dataset.weights[0, 1] = 2.0
    assert list(changed(loader)) == ["dataset.weights"]


RATE = 0.1
RECORD = {"seen": 0, "names": []}


class Collate:
    share = 1

    def __init__(self):
        self.rate = 0.1

    def __call__(self, rows):
        return [row * RATE * self.rate * Collate.share for row in rows], RECORD["seen"]


@pytest.fixture
def collating(loader):
    loader.collate_fn, loader._iterator = Collate(), None
    changed(loader)
    loader._iterator = object()
    return loader


def test_an_attribute_of_the_collate_function(collating):
    collating.collate_fn.rate = 0.2

    assert changed(collating) == {"collate_fn.rate": "0.1 → 0.2"}


def test_globals_and_class_attributes_that_the_code_uses(collating, monkeypatch):
    monkeypatch.setitem(globals(), "RATE", 0.3)
    monkeypatch.setattr(Collate, "share", 2)
    monkeypatch.setitem(RECORD, "seen", 1)

    assert {path.rpartition(".")[2]: change for path, change in changed(collating).items()} == {
        "RATE": "0.1 → 0.3",
        "share": "1 → 2",
        "RECORD['seen']": "0 → 1",
    }


def test_a_global_container_that_grows_is_nobodys_attribute(collating, monkeypatch):
    monkeypatch.setitem(RECORD, "names", ["a"])
    monkeypatch.setitem(RECORD, "new", 1)

    assert changed(collating) == {}


def test_a_method_of_the_dataset_that_collates_is_told_once(loader):
    loader.collate_fn = types.MethodType(lambda self, rows: rows, loader.dataset)
    loader.dataset.epoch = 3

    assert changed(loader) == {"dataset.epoch": "0 → 3"}


class Config:
    def __init__(self):
        self.rate, self.size = 0.1, 8
        self.rest = {"decay": 0.1, "shift": 1}

    def anneal(self):
        self.rate /= 2


CONFIG = Config()
SETTINGS = {"rate": 0.1, "size": 8}


def crop(row, config):
    rate = row
    row = rate
    return row[: config.size + config.rest["shift"]] + CONFIG.size + SETTINGS["size"]


class Cropped:
    def __init__(self):
        self.config = Config()
        self.settings = {"rate": 0.1, "crop": 8, "optimizer": {"momentum": 0.9}, "losses": [0.5]}
        self.shares = {"a": 0.5, "b": 0.5}
        self.level = 1
        self.last = 0
        self.count = 0
        self.cache = {}
        self.record = []

    def describe(self):
        return self.level

    def __getitem__(self, index):
        self.record.append(index)
        self.last = index
        self.count += 1
        if index not in self.cache:
            self.cache[index] = len(self.record)
        return self.cache[index] + self.cut(index) * self.settings["crop"] * self.shares[index]

    def cut(self, index):
        return crop(index, self.config)


@pytest.mark.parametrize(
    ("change", "path", "is_used"),
    [
        (lambda data: setattr(data.config, "size", 9), "dataset.config.size", True),
        (lambda data: setattr(data.config, "rate", 0.2), "dataset.config.rate", False),
        (lambda data: setattr(data, "level", 2), "dataset.level", False),
        (lambda data: setattr(data, "last", 2), "dataset.last", False),
        (lambda data: data.record.append(2), "dataset.record", False),
        (lambda data: data.cache.update({2: 3}), "dataset.cache", False),
        (lambda data: setattr(data, "count", 2), "dataset.count", False),
        (lambda data: data.settings.update(crop=9), "dataset.settings", True),
        (lambda data: data.settings.update(rate=0.2), "dataset.settings", False),
        (lambda data: data.settings.update(best=0.2), "dataset.settings", False),
        (lambda data: data.settings["optimizer"].update(momentum=0.5), "dataset.settings", False),
        (lambda data: data.settings["losses"].append(0.2), "dataset.settings", False),
        (lambda data: data.config.rest.update(shift=2), "dataset.config.rest", True),
        (lambda data: data.config.rest.update(decay=2), "dataset.config.rest", False),
        (lambda data: data.shares.update(a=0.9), "dataset.shares", True),
    ],
)
def test_only_what_the_code_that_makes_samples_mentions_is_used(change, path, is_used):
    made = SimpleNamespace(dataset=Cropped(), collate_fn=None, _iterator=None, persistent_workers=True)
    changed(made)
    made._iterator = object()

    change(made.dataset)

    found = attributes.changed(made)
    assert list(found.all) == [path]
    assert found.used == ((path,) if is_used else ())


def test_what_a_part_of_many_has_is_used_by_its_own_name():
    whole = SimpleNamespace(datasets=[Cropped(), Cropped()])
    made = SimpleNamespace(dataset=whole, collate_fn=None, _iterator=None, persistent_workers=True)
    changed(made)
    made._iterator = object()

    for part in whole.datasets:
        part.config.size, part.level = 9, 2

    assert attributes.changed(made).used == (
        "dataset.datasets[0].config.size",
        "dataset.datasets[1].config.size",
    )


def test_of_a_config_that_all_share_only_what_samples_are_made_with_is_used(monkeypatch):
    made = SimpleNamespace(dataset=Cropped(), collate_fn=None, _iterator=None, persistent_workers=True)
    changed(made)
    made._iterator = object()

    monkeypatch.setattr(CONFIG, "rate", 0.05)
    monkeypatch.setitem(SETTINGS, "rate", 0.05)
    assert (len(changed(made)), attributes.changed(made).used) == (2, ())

    monkeypatch.setattr(CONFIG, "size", 9)
    monkeypatch.setitem(SETTINGS, "size", 9)
    assert [path.rpartition(".")[2] for path in attributes.changed(made).used] == ["size", "SETTINGS['size']"]


def test_what_transforms_in_a_chain_of_a_part_use_is_seen(monkeypatch):
    chain = SimpleNamespace(steps=[Collate()])
    whole = SimpleNamespace(datasets=[SimpleNamespace(transform=chain)])
    made = SimpleNamespace(dataset=whole, collate_fn=None, _iterator=None, persistent_workers=True)
    changed(made)
    made._iterator = object()

    monkeypatch.setattr(Collate, "share", 3)

    assert attributes.changed(made).used == ("Collate.share",)


def test_what_a_collate_function_has_closed_over_is_used():
    share = 1

    def collate(rows):
        return [row * share for row in rows]

    made = SimpleNamespace(dataset=Data(), collate_fn=collate, _iterator=None, persistent_workers=True)
    changed(made)
    made._iterator = object()
    share = 2

    assert attributes.changed(made).used == ("collate_fn.<share>",)
