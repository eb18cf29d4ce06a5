"""Records of bad samples: exact in number, bounded in size."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock._engine import bad_samples as module
from penstock._engine.bad_samples import BadSample, BadSamples, describe, key_of, plain_index


def sample(index=3, **changes):
    facts = {"key": None, "worker": 1, "attempt": 1, "time": 5.0, "action": "skip"}
    try:
        raise ValueError("broken file")
    except ValueError as error:
        return describe(error, index=index, **{**facts, **changes})


# ---- records ------------------------------------------------------------------------------------


def test_a_record_has_the_exception_in_words():
    record = sample()
    assert (record.exception, record.message) == ("ValueError", "broken file")
    assert record.traceback.startswith("Traceback (most recent call last)")
    assert record.traceback.endswith("ValueError: broken file\n")


def test_a_record_travels_as_its_fields():
    record = sample()
    assert BadSample(*pickle.loads(pickle.dumps(record.as_tuple()))) == record
    assert BadSample(**record.as_dict()) == record


def test_long_texts_are_cut():
    record = describe(
        ValueError("x" * 100_000), index=0, key=None, worker=0, attempt=1, time=0.0, action="skip"
    )
    assert len(record.message) == module.LONGEST_MESSAGE
    assert len(record.traceback) == module.LONGEST_TRACEBACK


def test_an_exception_that_cannot_be_printed_is_no_trouble():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    record = describe(Mute(), index=0, key=None, worker=0, attempt=1, time=0.0, action="skip")
    assert (record.exception, record.message) == ("Mute", "(no text: its __str__ failed)")


class Unprintable:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("index", "plain"),
    [
        (3, 3),
        (None, None),
        ("a", "a"),
        (np.int64(3), 3),
        (torch.tensor(3), 3),
        (("a", 1), "('a', 1)"),
        ([1, 2], "[1, 2]"),
        ("x" * 1000, "x" * 1000),
        (("x" * 1000,), repr(("x" * 1000,))[: module.LONGEST_INDEX]),
        (Unprintable(), "(a Unprintable)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_index_becomes_plain(index, plain):
    found = plain_index(index)
    assert found == plain
    assert type(found) is type(plain)


# ---- keys ---------------------------------------------------------------------------------------


class Named:
    def penstock_key(self, index):
        return f"record {index}"


class Folder:
    samples = (("a.jpg", 0), (Path("b.jpg"), 1))


class Paths:
    paths = ("a.jpg", b"b.jpg")


class Tensors:
    samples = (torch.zeros(2),)


class Broken:
    def penstock_key(self, index):
        raise OSError


class Nameless:
    def penstock_key(self, index):
        return None


@pytest.mark.parametrize(
    ("dataset", "index", "key"),
    [
        (Named(), 1, "record 1"),
        (Folder(), 0, "a.jpg"),
        (Folder(), 1, "b.jpg"),
        (Folder(), 9, None),
        (Paths(), 1, "b.jpg"),
        (Tensors(), 0, None),
        (Broken(), 0, None),
        (Nameless(), 0, None),
        (object(), 0, None),
        (torch.utils.data.Subset(Folder(), [1, 0]), 0, "b.jpg"),
        (torch.utils.data.Subset(torch.utils.data.Subset(Named(), [5, 6]), [1]), 0, "record 6"),
    ],
)
def test_a_key_is_what_the_dataset_calls_the_sample(dataset, index, key):
    assert key_of(dataset, index) == key


# ---- loader.errors ------------------------------------------------------------------------------


def test_bad_samples_are_listed_in_order():
    errors = BadSamples()
    for index in (5, 3, 5, None):
        errors.add(sample(index))
    assert (errors.count, len(errors)) == (4, 4)
    assert errors.indices == [5, 3]
    assert [each.index for each in errors] == [5, 3, 5, None]
    assert errors[1].index == 3
    assert repr(errors) == "<4 bad samples, indices [5, 3]>"


def test_many_indices_are_shown_in_part():
    errors = BadSamples()
    for index in range(20):
        errors.add(sample(index))
    assert repr(errors) == "<20 bad samples, indices [0, 1, 2, 3, 4, 5, 6, 7, …]>"


def test_memory_is_bounded_and_counts_are_exact(monkeypatch):
    monkeypatch.setattr(module, "MOST_TRACEBACKS", 2)
    monkeypatch.setattr(module, "MOST_RECORDS", 3)
    errors = BadSamples()
    for index in range(5):
        errors.add(sample(index))
    assert (errors.count, errors.indices) == (5, [0, 1, 2, 3, 4])
    assert [bool(each.traceback) for each in errors] == [True, True, False]


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda errors: pickle.loads(pickle.dumps(errors))])
def test_a_copy_has_its_own(twin_of):
    errors = BadSamples()
    errors.add(sample())
    twin = twin_of(errors)
    twin.add(sample())
    assert (errors.count, twin.count) == (1, 2)
