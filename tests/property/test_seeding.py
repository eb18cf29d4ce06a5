"""Mixing seeds: nothing collides, everything can be repeated."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock._engine.seeding import derive, mix, number_of

WORDS = st.integers(0, 2**64 - 1)


def unmix(value):
    value ^= value >> 31 ^ value >> 62
    value = value * pow(0x94D049BB133111EB, -1, 2**64) % 2**64
    value ^= value >> 27 ^ value >> 54
    value = value * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64
    return value ^ value >> 30 ^ value >> 60


@given(WORDS)
def test_mixing_loses_nothing(word):
    assert unmix(mix(word)) == word


@given(WORDS, st.integers(0, 63))
def test_every_bit_counts(word, bit):
    assert 8 <= (mix(word) ^ mix(word ^ 1 << bit)).bit_count() <= 56


@given(st.tuples(WORDS, st.integers(0, 999)), st.tuples(WORDS, st.integers(0, 999)))
def test_seeds_and_epochs_do_not_meet(one, other):
    assert (derive(*one, "sample") == derive(*other, "sample")) == (one == other)


@given(st.one_of(st.text(), st.binary(), st.tuples(st.integers(), st.text())))
def test_every_index_has_a_number(index):
    assert 0 <= number_of(index) < 2**64
