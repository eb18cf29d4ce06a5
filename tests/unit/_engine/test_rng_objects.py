"""Generators in a dataset: found, followed, seeded, and judged."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from penstock._engine import rng_objects
from penstock._engine.rng_objects import (
    Repeat,
    RngSign,
    RngWatch,
    find,
    fingerprint,
    is_ahead,
    repeated,
    state,
)

RNGS = {
    "PCG64": np.random.default_rng,
    "PCG64DXSM": lambda seed: np.random.Generator(np.random.PCG64DXSM(seed)),
    "MT19937": lambda seed: np.random.Generator(np.random.MT19937(seed)),
    "SFC64": lambda seed: np.random.Generator(np.random.SFC64(seed)),
    "Philox": lambda seed: np.random.Generator(np.random.Philox(seed)),
    "RandomState": np.random.RandomState,
    "random": random.Random,
    "torch": lambda seed: torch.Generator().manual_seed(seed),
}


def draw(rng, times=1):
    for _ in range(times):
        torch.rand((), generator=rng) if isinstance(rng, torch.Generator) else rng.random()


@pytest.fixture(params=RNGS)
def make(request):
    """Makes a generator of each kind from a seed."""
    return RNGS[request.param]


# ---- finding ------------------------------------------------------------------------------------


class Holder:
    def __init__(self, **parts):
        vars(self).update(parts)

    @property
    def trap(self):
        raise AssertionError("a property was run")

    def __getattr__(self, name):
        raise AssertionError("code of the user's was run")


def test_generators_are_found_wherever_they_are(make):
    rng = make(0)
    dataset = Holder(a=Holder(b=[{"c": rng}]), again=rng, other=make(1), text="x", array=np.zeros(3))
    assert [path for path, _ in find(dataset)] == ["dataset.again", "dataset.other"]
    assert [path for path, _ in find(Holder(a=[(0, {"c": rng})]))] == ["dataset.a[0][1]['c']"]


def test_the_global_generators_and_those_of_the_system_are_left_alone():
    held = Holder(
        a=random._inst, b=np.random.mtrand._rand, c=torch.default_generator, d=random.SystemRandom()
    )
    assert find(held) == []


def test_the_walk_ends():
    one, other = Holder(), Holder()
    vars(one)["other"], vars(other)["one"] = other, one
    assert find(one) == []
    assert find(Holder(many=[Holder(parts=list(range(100))) for _ in range(10_000)])) == []
    deep = random.Random()
    for _ in range(10):
        deep = [deep]
    assert find(Holder(deep=deep)) == []


# ---- following ----------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2, 311, 313, 1000])
def test_a_generator_that_is_drawn_from_is_ahead(make, times):
    rng = make(5)
    before = state(rng)
    draw(rng, times)
    assert is_ahead(before, state(rng))
    assert fingerprint(before) != fingerprint(state(rng))


def test_a_generator_with_another_seed_is_not_ahead(make):
    other = make(6)
    draw(other, 3)
    assert not is_ahead(state(make(5)), state(other))
    assert not is_ahead(None, state(other))


def test_a_generator_is_used_if_two_samples_move_it(make):
    used, once, unused = make(0), make(0), make(0)
    watch = RngWatch([("used", used), ("once", once), ("unused", unused)])
    draw(once)
    for _ in range(3):
        draw(used)
        watch.see()
    assert [sign.is_used for sign in watch.signs()] == [True, False, False]
    assert len({sign.first for sign in watch.signs()}) == 1


def test_a_generator_that_jumps_is_not_used(make):
    rng = make(0)
    watch = RngWatch([("rng", rng)])
    for seed in range(3):
        rng_objects.reseed([("rng", rng)], seed, 0)
        draw(rng)
        watch.see()
    assert [sign.is_used for sign in watch.signs()] == [False]


def test_generators_are_seeded_by_epoch_worker_and_place(make):
    def seeded(base_seed, worker):
        rngs = [("a", make(0)), ("b", make(0))]
        return rng_objects.reseed(rngs, base_seed, worker)

    assert seeded(1, 0) == seeded(1, 0)
    assert len({*seeded(1, 0), *seeded(1, 1), *seeded(2, 0), *seeded(-3, 0)}) == 8


def test_a_generator_that_was_seeded_or_replaced_since_is_not_untouched(make):
    dataset = Holder(same=make(0), seeded=make(0), replaced=make(0))
    found = find(dataset)
    states = rng_objects.reseed(found, 1, 0)
    assert rng_objects.untouched(dataset, found, states) == {path for path, _ in found}
    draw(dataset.seeded)
    dataset.replaced = make(0)
    assert rng_objects.untouched(dataset, found, states) == {"dataset.same"}


# ---- judging ------------------------------------------------------------------------------------


def sign(first=b"1", last=b"2", is_used=True, is_reseeded=False, path="dataset.rng"):
    return (RngSign(path, first, last, is_used, is_reseeded),)


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ({}, None),
        ({0: sign()}, None),
        ({0: sign(), 1: sign()}, (0, 1)),
        ({0: sign(), 1: sign(b"9"), 2: sign()}, (0, 2)),
        ({0: sign(), 1: sign(b"9")}, None),
        ({0: sign(), 1: sign(is_used=False)}, None),
        ({0: sign(is_reseeded=True), 1: sign(is_reseeded=True)}, None),
        ({0: sign(), 1: sign(path="dataset.other")}, None),
    ],
)
def test_a_generator_repeats_if_two_workers_use_it_from_one_state(reports, expected):
    found = repeated(reports, {}, in_step=False)
    assert found == (None if expected is None else Repeat("dataset.rng", expected))


def test_workers_that_fall_out_of_step_may_share_a_generator_on_purpose():
    reports = {0: sign(last=b"3"), 1: sign(last=b"4")}
    assert repeated(reports, {}, in_step=True) is None
    assert repeated(reports, {}, in_step=False) is not None


def test_a_lone_worker_repeats_the_epoch_before():
    assert repeated({0: sign()}, {"dataset.rng": b"1"}, in_step=False) == Repeat("dataset.rng", (0,))
    assert repeated({0: sign()}, {"dataset.rng": b"8"}, in_step=False) is None


def test_what_was_seeded_is_told_if_it_is_used():
    assert rng_objects.reseeded({0: sign(is_reseeded=True)}) == "dataset.rng"
    assert rng_objects.reseeded({0: sign(is_reseeded=True, is_used=False), 1: sign()}) is None
