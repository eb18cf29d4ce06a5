"""The look at the first samples."""

from __future__ import annotations

import random

import pytest

from penstock._engine.rng_objects import RngWatch
from penstock._engine.unsharded import MOST, digest
from penstock._engine.watch import ITEMS, Watch, WatchedItems, WatchedStream


def digests(values):
    return tuple(digest(value)[0] for value in values)


def test_a_watched_stream_yields_what_it_would_and_no_earlier():
    made = []

    def stream():
        for value in range(100):
            made.append(value)
            yield value

    watch = Watch(None, is_iterable=True)
    watched = WatchedStream(stream(), watch)
    for value in range(MOST):
        assert not watch.is_done
        assert next(watched) == value
        assert made == list(range(value + 1))
    assert watch.is_done
    assert list(watched) == list(range(MOST, 100))
    assert watch.signs() == (digests(range(MOST)), ())


def test_a_short_stream_is_seen_whole():
    watch = Watch(None, is_iterable=True)
    assert list(WatchedStream(iter("ab"), watch)) == ["a", "b"]
    assert watch.is_done
    assert watch.signs() == (digests("ab"), ())


def test_look_ahead_gives_back_all_that_it_took():
    watch = Watch(None, is_iterable=True)
    rest = iter(range(100))
    stream = watch.look_ahead(rest)
    assert watch.signs() == (digests(range(MOST)), ())
    assert len(watch.ahead) == MOST
    assert [next(stream) for _ in range(MOST)] == list(range(MOST))
    assert not watch.ahead
    assert list(stream) == list(range(MOST, 100))


def test_look_ahead_raises_in_its_place():
    def stream():
        yield 1
        raise LookupError("broken")

    watch = Watch(None, is_iterable=True)
    found = watch.look_ahead(stream())
    assert next(found) == 1
    with pytest.raises(LookupError, match="broken"):
        next(found)
    assert list(found) == []


class Draws:
    def __init__(self):
        self.rng = random.Random(0)

    def __getitem__(self, index):
        return index, self.rng.random()


class Together(Draws):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def test_watched_items_are_the_datasets():
    plain, dataset = Draws(), Draws()
    watch = Watch(RngWatch([("dataset.rng", dataset.rng)]), is_iterable=False)
    watched = WatchedItems(dataset, watch)
    assert not hasattr(watched, "__getitems__")
    for index in range(ITEMS):
        assert not watch.is_done
        assert watched[index] == plain[index]
    assert watch.is_done
    assert watched[9] == plain[9]
    prefix, (sign,) = watch.signs()
    assert prefix == ()
    assert sign.is_used


def test_items_that_are_fetched_together_are_one_call():
    dataset = Together()
    watch = Watch(RngWatch([("dataset.rng", dataset.rng)]), is_iterable=False)
    watched = WatchedItems(dataset, watch)
    for _ in range(ITEMS):
        assert not watch.is_done
        assert [index for index, _ in watched.__getitems__([3, 4])] == [3, 4]
    assert watch.is_done
