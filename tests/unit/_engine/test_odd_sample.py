"""One sentence about the sample that does not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from penstock._engine.odd_sample import describe_odd

FITS = torch.zeros(3, 4)


@pytest.mark.parametrize(
    ("samples", "sentence"),
    [
        (
            [FITS, FITS, torch.zeros(3, 5)],
            "sample index: 30 (position 2 in its batch) does not fit: is Tensor of shape (3, 5), "
            "in sample 10 it is Tensor of shape (3, 4)",
        ),
        (
            [(FITS, 1), (torch.zeros(2), 1)],
            "sample index: 20 (position 1 in its batch) does not fit: field [0] is Tensor of shape (2,), "
            "in sample 10 it is Tensor of shape (3, 4)",
        ),
        (
            [{"x": [FITS, 1]}, {"x": [FITS, "1"]}],
            "sample index: 20 (position 1 in its batch) does not fit: field ['x'][1] is str, "
            "in sample 10 it is int",
        ),
        (
            [{"x": 1, "y": 2}, {"x": 1}],
            "sample index: 20 (position 1 in its batch) does not fit: is dict with keys [\"'x'\"], "
            "in sample 10 it is dict with keys [\"'x'\", \"'y'\"]",
        ),
        (
            [[1, 2], [1, 2, 3]],
            "sample index: 20 (position 1 in its batch) does not fit: is list of length 3, "
            "in sample 10 it is list of length 2",
        ),
        (
            [np.zeros(3), np.zeros((3, 1))],
            "sample index: 20 (position 1 in its batch) does not fit: is ndarray of shape (3, 1), "
            "in sample 10 it is ndarray of shape (3,)",
        ),
        (
            [1, None],
            "sample index: 20 (position 1 in its batch) does not fit: is None, in sample 10 it is int",
        ),
        (
            [(1, None), (1, None)],
            "sample index: 10 (position 0 in its batch) does not fit: field [1] is None, "
            "in sample 10 it is None",
        ),
        (
            [(1, 2), [1, 2]],
            "sample index: 20 (position 1 in its batch) does not fit: is list of length 2, "
            "in sample 10 it is tuple of length 2",
        ),
    ],
)
def test_the_first_difference_is_named_with_its_field(samples, sentence):
    assert describe_odd(samples, [10, 20, 30]) == sentence


def test_another_dtype_is_named():
    samples = [torch.zeros(2), torch.zeros(2, dtype=torch.int32)]
    assert "float32" in describe_odd(samples, [10, 20])


def test_samples_that_fit_are_listed():
    assert describe_odd(["a", "b"], [10, 20]) == "sample indices: 10, 20"


def test_a_long_list_is_cut():
    assert describe_odd(range(9), range(9)) == "sample indices: 0, 1, 2, 3, 4, 5, 6, 7, …"


def test_a_batch_of_eight_is_listed_whole():
    assert describe_odd(range(8), range(8)) == "sample indices: 0, 1, 2, 3, 4, 5, 6, 7"


def test_no_samples_are_nothing_to_tell():
    assert describe_odd([], []) == ""


def test_an_index_that_is_not_known_is_not_listed():
    assert describe_odd([1], None) == ""
    assert describe_odd([1, 2], [10]) == "sample indices: 10"


def test_texts_are_not_taken_apart():
    assert describe_odd(["ab", "abc", b"ab"], [1, 2, 3]).startswith("sample index: 3 (position 2")


class Nasty:
    @property
    def shape(self):
        raise RuntimeError("do not look at me")


@pytest.mark.parametrize("samples", [None, 5, [1, Nasty()]])
def test_samples_that_cannot_be_looked_at_are_nothing_to_tell(samples):
    assert describe_odd(samples, [1, 2]) == ""
