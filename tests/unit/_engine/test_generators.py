"""Where generators of random numbers are found, and that each kind can be reset, saved and restored."""

from __future__ import annotations

import functools
import random
from collections import deque, namedtuple

import numpy as np
import pytest
import torch

from penstock._engine import generators
from penstock._engine.generators import find, of_the_process


class Holder:
    def __init__(self, **parts):
        self.__dict__.update(parts)


class Slots:
    __slots__ = ("empty", "rng")

    def __init__(self, rng):
        self.rng = rng


Pair = namedtuple("Pair", "left right")

KINDS = {
    "random": (lambda: random.Random(1), lambda rng: (rng.random(), rng.gauss(0, 1))),
    "torch": (torch.Generator, lambda rng: torch.randn(3, generator=rng).tolist()),
    "RandomState": (lambda: np.random.RandomState(1), lambda rng: (rng.rand(), rng.randn())),
    "RandomState of PCG64": (
        lambda: np.random.RandomState(np.random.PCG64(1)),
        lambda rng: (rng.rand(), rng.randn()),
    ),
    **{
        name: (
            lambda name=name: np.random.Generator(getattr(np.random, name)(1)),
            lambda rng: (rng.random(), rng.integers(9, dtype=np.uint32), rng.normal()),
        )
        for name in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
    },
    "a bit generator": (lambda: np.random.PCG64(1), lambda rng: rng.random_raw(2).tolist()),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def kind(request):
    return request.param


# ---- each kind ----------------------------------------------------------------------------------


def test_a_seed_decides_what_comes(kind):
    make, draw = kind
    one, other = make(), make()
    (first,), (second,) = find([one]), find([other])
    draw(other)  # they are at different places, and hold half a pair of normal numbers
    first.reset(2**63 + 5)
    second.reset(2**63 + 5)
    assert draw(one) == draw(other)
    first.reset(2**62 + 6)
    second.reset(2**63 + 5)
    assert draw(one) != draw(other)


def test_a_state_can_be_put_back(kind):
    make, draw = kind
    one = make()
    (rng,) = find([one])
    draw(one)
    before = rng.save()
    expected = draw(one)
    rng.reset(3)
    draw(one)
    rng.restore(before)
    assert draw(one) == expected


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**64 - 1])
def test_every_seed_of_64_bits_is_taken(kind, seed):
    (rng,) = find([kind[0]()])
    rng.reset(seed)


def test_the_process_has_three():
    saved = [(rng, rng.save()) for rng in of_the_process()]
    try:
        for rng, _ in saved:
            rng.reset(11)
        first = random.random(), np.random.rand(), torch.rand(1).item()
        for rng, _ in saved:
            rng.reset(11)
        assert (random.random(), np.random.rand(), torch.rand(1).item()) == first
    finally:
        for rng, state in saved:
            rng.restore(state)


# ---- where they are found -----------------------------------------------------------------------


def closure(rng):
    return lambda: rng.random() + 1


PLACES = {
    "itself": lambda rng: rng,
    "an attribute": lambda rng: Holder(rng=rng),
    "deeper": lambda rng: Holder(transform=Holder(steps=[Holder(rng=rng)])),
    "a slot": Slots,
    "a dict": lambda rng: {"a": 1, ("b",): rng},
    "a list": lambda rng: [1, [2, rng]],
    "a tuple": lambda rng: (1, rng),
    "a named tuple": lambda rng: Pair(1, rng),
    "a deque": lambda rng: deque([rng]),
    "a partial": lambda rng: functools.partial(print, sep=rng),
    "a method": lambda rng: rng.random,
    "a method of Python": lambda rng: Holder(draw=rng.shuffle),
    "a closure": closure,
    "a subset": lambda rng: torch.utils.data.Subset(Holder(rng=rng), [0]),
    "a module": lambda rng: torch.nn.Sequential(torch.nn.Identity(), with_rng(torch.nn.Identity(), rng)),
}


def with_rng(module, rng):
    module.rng = rng
    return module


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_generator_is_found_in(place):
    rng = random.Random(1)
    assert [found.owner for found in find(place(rng))] == [rng]


def test_one_that_many_ways_lead_to_is_found_once():
    rng = np.random.default_rng(1)
    other = np.random.Generator(rng.bit_generator)
    found = find([rng, {"again": rng}, other, rng.bit_generator])
    assert [each.owner for each in found] == [rng.bit_generator]


def test_a_circle_is_walked_once():
    one = Holder(rng=random.Random(1))
    one.me = [one]
    assert len(find(one)) == 1


def test_each_has_a_key_of_its_own():
    dataset = Holder(a=random.Random(1), b=random.Random(1), c=[random.Random(1), random.Random(1)])
    assert len({rng.key for rng in find(dataset)}) == 4


def test_the_key_depends_on_the_way_alone():
    one = find(Holder(a=random.Random(1), b=random.Random(2)))
    other = find(Holder(b=np.random.default_rng(3)))
    assert one[1].key == other[0].key


def test_those_of_the_process_are_left_out():
    everything = [random.random, np.random.rand, torch.default_generator, np.random.mtrand._rand]
    assert find(everything) == []


def test_randomness_without_a_seed_is_left_out():
    assert find([random.SystemRandom()]) == []


@pytest.mark.parametrize("value", [None, 5, "text", np.zeros(3), torch.zeros(3), random, random.Random, {1}])
def test_nothing_is_found_in(value):
    assert find(value) == []


# ---- limits -------------------------------------------------------------------------------------


def test_large_containers_are_data():
    rng = random.Random(1)
    width = generators.WIDEST
    assert find([[rng] * (width + 1), dict.fromkeys(range(width + 1), rng)]) == []
    assert len(find([rng] * width)) == 1


def test_the_search_ends_in_the_depth():
    def nested(depth):
        value = random.Random(1)
        for _ in range(depth):
            value = [value]
        return value

    assert len(find(nested(generators.DEEPEST))) == 1
    assert find(nested(generators.DEEPEST + 1)) == []


def test_the_search_ends_in_the_breadth_and_begins_near():
    crowd = [[0] * generators.WIDEST for _ in range(generators.WIDEST)]
    near, far = random.Random(1), random.Random(2)
    assert [rng.owner for rng in find(Holder(crowd=crowd, far=[[[far]]], near=near))] == [near]


def test_no_code_of_the_user_is_run():
    def forbidden(*_):
        raise AssertionError("ran")

    class Trap:
        __slots__ = ("__dict__",)
        value = property(forbidden)
        __getattr__ = __iter__ = __len__ = __getitem__ = __hash__ = __eq__ = forbidden

    class Proxy:
        __slots__ = ()
        __dict__ = property(forbidden)
        __class__ = property(forbidden)
        __getattribute__ = forbidden

    class Words(dict):
        items = keys = values = __iter__ = __len__ = forbidden

    class Items(list):
        __iter__ = __len__ = forbidden

    trap, rng = Trap(), random.Random(1)
    trap.rng = rng
    assert [found.owner for found in find([Proxy(), Words(a=1), Items([1]), trap])] == [rng]
