"""Which changes of a dataset count, and how they travel."""

from __future__ import annotations

import pickle
from functools import cached_property

import numpy as np
import pytest
import torch

from penstock._engine.stale import Change, apply, changes, not_sent, pack, snapshot


class Part:
    def __init__(self):
        self.p = 0.5


class Holder:
    def __init__(self):
        self.epoch = 0
        self.part = Part()
        self.call = self.method
        self._length = None
        self.nan = float("nan")

    def method(self):
        pass

    @cached_property
    def computed(self):
        return 5

    @property
    def trap(self):
        raise AssertionError("a property was run")


def found(change, holder=None):
    holder = holder or Holder()
    before = snapshot(holder)
    change(holder)
    return [(each.name, each.old, each.new) for each in changes(holder, before, snapshot(holder))]


@pytest.mark.parametrize(
    ("name", "value"),
    [("epoch", 1), ("epoch", 0.0), ("epoch", "a"), ("epoch", (1, ("b", None))), ("epoch", None)],
)
def test_a_plain_value_that_changed_is_found(name, value):
    assert found(lambda holder: setattr(holder, name, value)) == [(f"dataset.{name}", 0, value)]


def test_a_value_one_level_down_is_found():
    assert found(lambda holder: setattr(holder.part, "p", 0.1)) == [("dataset.part.p", 0.5, 0.1)]


def test_a_new_attribute_is_found():
    assert found(lambda holder: setattr(holder, "fold", 3)) == [("dataset.fold", None, 3)]


def test_a_private_value_that_was_there_is_found():
    holder = Holder()
    holder._epoch = 0
    assert found(lambda holder: setattr(holder, "_epoch", 1), holder) == [("dataset._epoch", 0, 1)]


def test_a_function_that_was_replaced_is_found():
    assert [name for name, _, _ in found(lambda holder: setattr(holder, "call", len))] == ["dataset.call"]


@pytest.mark.parametrize(
    "change",
    [
        lambda holder: None,
        lambda holder: holder.computed,
        lambda holder: setattr(holder, "_length", 5),
        lambda holder: setattr(holder, "_new", 5),
        lambda holder: setattr(holder, "call", holder.method),
        lambda holder: setattr(holder, "nan", float("nan")),
        lambda holder: setattr(holder, "cache", {}),
        lambda holder: setattr(holder, "array", np.zeros(3)),
        lambda holder: setattr(holder, "tensor", torch.zeros(3)),
        lambda holder: setattr(holder, "kind", Part),
        lambda holder: setattr(holder, "new", Part()),
        lambda holder: setattr(holder, "part", Part()),
        lambda holder: delattr(holder, "epoch"),
        lambda holder: setattr(holder, "long", tuple(range(100))),
    ],
)
def test_what_proves_nothing_is_not_found(change):
    assert found(change) == []


def test_an_object_without_attributes_has_no_snapshot():
    assert snapshot([1, 2]) == {}
    assert snapshot(5) == {}


def test_new_values_are_set_where_they_belong():
    holder = Holder()
    parcels = [
        pack(Change(("epoch",), 0, 3), pickle.dumps),
        pack(Change(("part", "p"), 0.5, 0.1), pickle.dumps),
        pack(Change(("gone", "p"), 0.5, 0.1), pickle.dumps),
    ]
    apply(holder, tuple(parcels))
    assert (holder.epoch, holder.part.p) == (3, 0.1)


def test_what_cannot_be_sent_says_why():
    assert not_sent(Change(("epoch",), 1, 2), "TypeError: no") == (
        "[PS303] `dataset.epoch` is 2, but persistent workers still have 1: they were given the dataset when "
        "they were started. cure=True could not send it: TypeError: no. Keep it where workers see it "
        "(`multiprocessing.Value`, a tensor after `share_memory_()`), or leave persistent_workers out."
    )
