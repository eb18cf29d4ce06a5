"""A packed list against the list that it was."""

from __future__ import annotations

import os
import pickle

from hypothesis import given
from hypothesis import strategies as st

from penstock._arena import packing
from penstock._arena.packing import PackedList, pack_large, swap_large

NAMES = st.binary(max_size=8).map(os.fsdecode)  # file names, with what is no UTF-8
ELEMENTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
)
LISTS = st.one_of(
    st.lists(st.text(max_size=8)),
    st.lists(NAMES),
    st.lists(st.binary(max_size=8)),
    st.lists(st.integers()),
    st.lists(st.tuples(NAMES, st.integers())),
    st.lists(
        st.one_of(ELEMENTS, st.lists(ELEMENTS, max_size=3), st.dictionaries(st.text(max_size=2), ELEMENTS))
    ),
)
PLACES = st.one_of(st.none(), st.integers(-60, 60))


def outcome(action):
    try:
        return action()
    except (IndexError, ValueError) as error:
        return type(error)


@given(
    plain=LISTS,
    index=st.integers(-60, 60),
    cut=st.builds(slice, PLACES, PLACES, PLACES.filter(lambda x: x != 0)),
)
def test_it_reads_like_the_list(plain, index, cut):
    packed = PackedList.pack(plain)
    assert len(packed) == len(plain)
    assert list(packed) == plain
    assert packed == plain
    assert packed[cut] == plain[cut]
    assert outcome(lambda: packed[index]) == outcome(lambda: plain[index])
    assert list(map(type, packed)) == list(map(type, plain))
    assert list(reversed(packed)) == plain[::-1]


@given(plain=LISTS, other=ELEMENTS)
def test_it_finds_what_the_list_finds(plain, other):
    packed = PackedList.pack(plain)
    for element in [*plain[:5], other]:
        assert (element in packed) == (element in plain)
        assert packed.count(element) == plain.count(element)
        assert outcome(lambda: packed.index(element)) == outcome(lambda: plain.index(element))  # noqa: B023


@given(plain=LISTS, other=LISTS)
def test_it_is_equal_to_what_the_list_is_equal_to(plain, other):
    assert (PackedList.pack(plain) == other) == (plain == other)
    assert (other == PackedList.pack(plain)) == (plain == other)


@given(plain=LISTS, is_out_of_band=st.booleans())
def test_it_survives_a_journey(plain, is_out_of_band):
    buffers = []
    callback = buffers.append if is_out_of_band else None
    data = pickle.dumps(PackedList.pack(plain), 5, buffer_callback=callback)
    assert pickle.loads(data, buffers=buffers) == plain


class Node:
    """An object that holds others."""

    def __init__(self, parts):
        self.__dict__.update(parts)


STRUCTURES = st.recursive(
    st.one_of(st.integers(), st.lists(st.text(max_size=2), max_size=8)),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.dictionaries(st.sampled_from("abc"), parts, max_size=3),
        st.dictionaries(st.sampled_from("abc"), parts, max_size=3).map(Node),
        st.tuples(parts, parts),
    ),
    max_leaves=10,
)


def same(one, other):
    """Whether two structures hold the same, packed or not."""
    if isinstance(one, Node):
        return type(other) is Node and same(one.__dict__, other.__dict__)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple, PackedList)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@given(structure=STRUCTURES)
def test_a_dataset_holds_the_same_after_the_swap(structure):
    before, packing.LARGE = packing.LARGE, 4
    try:
        root = Node({"x": structure})
        original = pickle.loads(pickle.dumps(root))
        packed = pack_large(root, {})
        assert same(root, original)
        swap_large(root, packed)
        assert same(root, original)
    finally:
        packing.LARGE = before
