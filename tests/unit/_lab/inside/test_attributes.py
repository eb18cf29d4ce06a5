"""Attributes that persistent workers do not see."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from penstock._lab.inside.attributes import changed


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
    made = SimpleNamespace(dataset=Data(), _iterator=None, persistent_workers=True)
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
