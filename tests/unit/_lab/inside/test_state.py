from __future__ import annotations

import functools
import random
from collections import OrderedDict

from penstock._lab.inside.state import State

CACHE = {}


@functools.cache
def load(index):
    return index


class Data:
    def __init__(self):
        self.rng = random.Random(1)
        self.seen = []
        self.fixed = [1, 2]

    def __getitem__(self, index):
        CACHE[index] = self.rng.random()
        self.seen.append(load(index))
        return index


def test_states_of_generators_change_when_they_are_drawn_from():
    data = Data()
    state = State(data)
    state.before(is_told=True)
    first = state.after()["rngs"]
    data[0]
    state.before(is_told=True)
    second = state.after()["rngs"]
    assert first["dataset.rng"] != second["dataset.rng"]
    assert first["torch"] == second["torch"]


def test_containers_that_grow_are_told_wherever_they_are():
    CACHE.clear()
    load.cache_clear()
    data = Data()
    state = State(data)
    for index in range(3):
        data[index]
    assert state.after()["caches"] == {"dataset.seen": 3, f"{__name__}.CACHE": 3, f"{__name__}.load": 3}
    state.shrink()
    assert (data.seen, CACHE, load.cache_info().currsize, data.fixed) == ([], {}, 0, [1, 2])


class Recent:
    def __init__(self):
        self.kept = OrderedDict()


def test_an_ordered_dictionary_is_emptied_with_its_order():
    data = Recent()
    state = State(data)
    data.kept[1] = "one"
    state.shrink()
    data.kept[2] = "two"
    assert (len(data.kept), data.kept.popitem(last=False)) == (1, (2, "two"))


class Reader:
    def __init__(self):
        self.kept = {}


class Shared:
    reader = Reader()

    def __getitem__(self, index):
        self.reader.kept[index] = index
        return index


def test_what_an_attribute_of_the_class_keeps_is_found_too():
    data = Shared()
    state = State(data)
    data[5]
    assert state.after()["caches"] == {"Shared.reader.kept": 1}


class Part:
    def __init__(self):
        self.decoded = None


class Lazily:
    def __init__(self):
        self.parts = {"a": Part(), "b": Part()}


def test_attributes_that_are_filled_when_first_asked_for_are_a_cache():
    data = Lazily()
    state = State(data)
    data.parts["a"].decoded = b"much"
    assert state.after()["caches"] == {"Part.decoded": 1}
    state.shrink()
    assert data.parts["a"].decoded is None


def test_a_generator_on_the_collate_function_is_followed():
    state = State([1], Data())
    state.before(is_told=True)
    assert "collate_fn.rng" in state.after()["rngs"]
