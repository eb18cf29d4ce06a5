"""When streams count as the same, and what a sample is reduced to."""

from __future__ import annotations

import collections
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock._engine import unsharded
from penstock._engine.unsharded import ENOUGH, MOST, digest, is_enough, is_repeated

A, B, C = (bytes([letter]) * 16 for letter in b"ABC")


@pytest.mark.parametrize(
    ("prefixes", "expected"),
    [
        ([], False),
        ([(A, B)], False),
        ([(), ()], False),
        ([(A,), (A,)], False),
        ([(A, A, A), (A, A, A)], False),
        ([(A, B), (A, B)], True),
        ([(A, B), (A, B), (A, B)], True),
        ([(A, B), (B, A)], False),
        ([(A, B), (A, B, C)], False),
        ([(A, B), (A, B), (C, B)], False),
        ([(A, B), ()], False),
    ],
)
def test_streams_are_the_same_if_all_begin_with_the_same_different_samples(prefixes, expected):
    assert is_repeated(prefixes) is expected


def test_few_large_or_many_small_samples_are_enough():
    different = [bytes([place]) for place in range(MOST)]
    assert is_enough(different[:ENOUGH], 10_000)
    assert not is_enough(different[: ENOUGH - 1], 10_000)
    assert not is_enough([A] * (MOST - 1), 10_000)
    assert not is_enough(different[: MOST - 1], 10)
    assert is_enough(different, 10)


Point = collections.namedtuple("Point", "x y")
DIFFERENT = [
    0, 1, True, None, 0.0, 1.0, "", "1", b"1", b"", (), [], {}, (1,), [1], [[1]], {"a": 1}, {"a": 2}, {"b":
    1}, ("ab", "c"), ("a", "bc"), Point(1, 2), np.zeros(2), np.zeros((2, 1)), np.zeros(2, np.float32),
    np.float64(1), torch.zeros(2), torch.zeros(2, dtype=torch.int64), torch.zeros(2, 1), torch.ones(2),
    torch.zeros(()), torch.zeros(2, dtype=torch.bfloat16), np.array(["a"], object), {1, 2}, "\ud800", 1j,
]  # fmt: skip


def test_different_samples_have_different_digests():
    assert len({digest(sample)[0] for sample in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize("sample", DIFFERENT, ids=repr)
def test_a_sample_has_one_digest(sample):
    assert digest(sample) == digest(sample)


def test_of_a_long_sample_both_ends_are_read():
    one = torch.zeros(1 << 20)
    first, last = one.clone(), one.clone()
    first[0], last[-1] = 1, 1
    assert len({digest(each)[0] for each in (one, first, last)}) == 3
    assert digest(one)[1] == 1 << 16


def test_a_view_equals_its_copy():
    whole = torch.arange(12).view(3, 4)
    assert digest(whole.T) == digest(whole.T.contiguous())
    assert digest(whole.requires_grad_(False)[:, 1]) == digest(whole[:, 1].clone())


def test_what_cannot_be_read_equals_nothing():
    lock = threading.Lock()
    endless: list = []
    endless.append(endless)
    for sample in (lock, endless, [lock]):
        assert digest(sample)[0] != digest(sample)[0]


@given(
    st.recursive(st.none() | st.integers() | st.text() | st.binary(), lambda part: st.lists(part, max_size=3))
)
def test_equal_samples_have_equal_digests(sample):
    import copy

    assert digest(sample) == digest(copy.deepcopy(sample))


def test_the_words():
    assert unsharded.warning(4, 8).startswith("[PS301] every worker yields the same samples: the first 4 ")
