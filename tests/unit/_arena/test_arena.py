"""Slabs that go out, come home, and never go out while somebody looks at them."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
import torch

from penstock._arena import arena as module
from penstock._arena.arena import ASK_FROM, COPY_BELOW, UNSEEN_BYTES, Arena
from penstock._base import descriptors, host

BIG = 2 * COPY_BELOW  # a batch that is held rather than copied


def fill(slab, nbytes=BIG, value=0):
    """What a worker does."""
    slab.segment.reserve(nbytes)
    os.pwrite(slab.segment.fd, bytes([value]) * nbytes, 0)
    return slab


def deliver(arena, worker=0, nbytes=BIG, value=0):
    """A batch from reserve to the consumer: its slab, and the view if it is held."""
    slab = arena.reserve(worker)
    assert slab is not None
    view, is_held = arena.open(fill(slab, nbytes, value), nbytes, nbytes)
    if is_held:
        return slab, view
    arena.copied(slab)
    return slab, None


def is_closed(slab):
    return slab.segment.fd == -1


# ---- who gets which slab ------------------------------------------------------------------------


def test_slabs_have_numbers_of_their_own(make_arena):
    arena = make_arena()
    assert [arena.reserve(0).number for _ in range(3)] == [0, 1, 2]


def test_a_cancelled_slab_goes_out_again(make_arena):
    arena = make_arena()
    slab = arena.reserve(0)
    arena.cancel(slab)
    assert arena.reserve(0) is slab


def test_a_worker_gets_the_slab_that_it_filled_before(make_arena):
    arena = make_arena()
    slabs = [arena.reserve(0) for _ in range(3)]
    for worker, slab in enumerate(slabs):
        slab.worker = worker
        arena.cancel(slab)
    assert arena.reserve(1) is slabs[1]


def test_a_worker_without_a_slab_of_its_own_gets_the_warmest(make_arena):
    arena = make_arena()
    slabs = [arena.reserve(0) for _ in range(3)]
    for slab in slabs:
        arena.cancel(slab)
    assert arena.reserve(7) is slabs[-1]


# ---- leases -------------------------------------------------------------------------------------


def test_a_held_slab_does_not_go_out(make_arena):
    arena = make_arena()
    slab, view = deliver(arena)
    assert arena.reserve(0) is not slab
    assert arena.held == 1
    del view


def test_a_slab_goes_out_when_its_last_view_is_gone(make_arena, without_collector):
    arena = make_arena()
    slab, view = deliver(arena)
    tensor = torch.frombuffer(view, dtype=torch.uint8)[:5]
    del view
    assert arena.reserve(0) is not slab
    del tensor
    assert arena.held == 0
    assert arena.reserve(0) is slab


def test_a_held_batch_is_not_overwritten(make_arena):
    arena = make_arena()
    _, view = deliver(arena, value=1)
    for value in range(2, 6):
        deliver(arena, value=value)
    assert bytes(view[:4]) == b"\1\1\1\1"


def test_a_slab_that_grew_is_mapped_anew(make_arena, without_collector):
    arena = make_arena()
    slab, view = deliver(arena)
    del view
    again, view = deliver(arena, nbytes=3 * BIG, value=9)
    assert again is slab
    assert len(view) == 3 * BIG
    assert view[-1] == 9


def test_a_slab_that_did_not_grow_keeps_its_mapping(make_arena, without_collector):
    arena = make_arena()
    slab, view = deliver(arena)
    mapping = slab.mapping
    del view
    assert deliver(arena)[0] is slab
    assert slab.mapping is mapping


# ---- copies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("used", "is_held"), [(COPY_BELOW - 1, False), (COPY_BELOW, True)])
def test_a_small_batch_is_copied(make_arena, used, is_held):
    arena = make_arena()
    view, held = arena.open(fill(arena.reserve(0)), BIG, used)
    assert held is is_held
    assert len(view) == BIG
    del view


def test_a_small_batch_does_not_count_as_copied_out(make_arena):
    arena = make_arena()
    deliver(arena, nbytes=100)
    assert arena.copied_out == 0


def test_a_copied_slab_is_free_at_once(make_arena):
    arena = make_arena()
    slab, _ = deliver(arena, nbytes=100)
    assert arena.reserve(0) is slab


def test_past_the_budget_batches_are_copied_out(make_arena):
    arena = make_arena(budget=2 * BIG)
    kept = [deliver(arena)[1] for _ in range(6)]
    assert [view is not None for view in kept] == [True, False, False, False, False, False]
    assert arena.copied_out == 5


def test_past_the_number_of_mappings_batches_are_copied_out(make_arena, monkeypatch):
    monkeypatch.setattr(module, "MOST_HELD", 2)
    arena = make_arena()
    kept = [deliver(arena)[1] for _ in range(4)]
    assert [view is not None for view in kept] == [True, True, False, False]


@pytest.mark.parametrize(("used", "is_held"), [(ASK_FROM - 1, False), (ASK_FROM, True)])
def test_a_batch_for_whose_copy_there_is_no_memory_is_held(make_arena, monkeypatch, used, is_held):
    arena = make_arena(budget=1)
    slab = fill(arena.reserve(0), ASK_FROM)
    monkeypatch.setattr(host, "memory_available", lambda: ASK_FROM)
    assert arena.open(slab, ASK_FROM, used)[1] is is_held


def test_few_descriptors_allow_few_leases(make_arena, monkeypatch):
    monkeypatch.setattr(descriptors, "limit", lambda: 8)
    arena = make_arena()
    kept = [deliver(arena)[1] for _ in range(4)]
    assert [view is not None for view in kept] == [True, True, False, False]


def test_what_was_copied_out_is_held_again_when_there_is_room(make_arena, without_collector):
    arena = make_arena(budget=2 * BIG)
    kept = [deliver(arena)[1] for _ in range(3)]
    kept.clear()
    assert deliver(arena)[1] is not None


def test_a_batch_is_held_when_another_slab_is_free_to_go_on_with(make_arena):
    arena = make_arena(budget=2 * BIG)
    arena.expected = BIG
    one, other = arena.reserve(0), arena.reserve(1)
    arena.cancel(other)
    assert arena.open(fill(one), 2 * BIG, BIG)[1] is True


# ---- the budget ---------------------------------------------------------------------------------


def test_one_batch_can_always_travel(make_arena):
    arena = make_arena(budget=1)
    for _ in range(3):
        assert deliver(arena)[1] is None
    assert arena.nbytes == BIG


def test_one_batch_can_always_travel_however_many_are_held(make_arena):
    arena = make_arena(budget=BIG * 3)
    kept = [view for _, view in (deliver(arena) for _ in range(10)) if view is not None]
    assert len(kept) == 2
    assert arena.reserve(0) is not None


def test_a_batch_travels_although_all_of_the_budget_is_held(make_arena):
    arena = make_arena(budget=2 * BIG)
    _, view = deliver(arena)
    huge = arena.reserve(0)
    huge.is_spent = True
    arena.open(fill(huge, 5 * BIG), 5 * BIG, 5 * BIG)
    arena.copied(huge)
    assert arena.nbytes + arena.expected > arena.budget
    assert arena.reserve(0) is not None
    del view


def test_a_slab_over_the_budget_waits_for_the_one_in_flight(make_arena):
    arena = make_arena(budget=BIG + 1)
    slab, _ = deliver(arena)
    assert arena.reserve(0) is slab
    assert arena.reserve(1) is None
    arena.cancel(slab)
    assert arena.reserve(1) is slab


def test_the_largest_batch_so_far_is_expected(make_arena):
    arena = make_arena()
    for nbytes in (BIG, 3 * BIG, 2 * BIG):
        deliver(arena, nbytes=nbytes)
    assert arena.expected == 3 * BIG


@pytest.mark.parametrize(("budget", "count"), [(1, 1), (UNSEEN_BYTES, 1), (3 * UNSEEN_BYTES, 3)])
def test_before_the_first_batch_each_counts_as_a_large_one(make_arena, budget, count):
    arena = make_arena(budget)
    assert [arena.reserve(0) is not None for _ in range(5)] == [True] * count + [False] * (5 - count)


def test_a_batch_that_has_arrived_counts_before_it_is_opened(make_arena):
    arena = make_arena(UNSEEN_BYTES)
    slab = arena.reserve(0)
    assert arena.reserve(0) is None
    slab.nbytes = BIG
    assert arena.reserve(0) is not None


def test_slabs_that_are_out_count_with_what_they_will_take(make_arena):
    arena = make_arena(budget=3 * BIG)
    deliver(arena)
    out = [slab for slab in (arena.reserve(0) for _ in range(8)) if slab is not None]
    assert len(out) == 3


def test_without_a_budget_a_quarter_of_the_free_memory_is_taken(monkeypatch):
    monkeypatch.setattr(host, "memory_available", lambda: 8 << 30)
    arena = Arena()
    assert arena.budget == 2 << 30
    arena.close()


def test_on_a_full_machine_there_is_still_a_budget(monkeypatch):
    monkeypatch.setattr(host, "memory_available", lambda: 0)
    assert module.default_budget() == 64 << 20


# ---- spent slabs --------------------------------------------------------------------------------


def test_a_spent_slab_is_given_up_when_it_comes_home(make_arena):
    arena = make_arena()
    slab = arena.reserve(0)
    slab.is_spent = True
    arena.cancel(slab)
    assert is_closed(slab)
    assert arena.reserve(0).number == 1
    assert arena.given_up() == [0]


def test_a_spent_slab_is_given_up_when_its_batch_dies(make_arena, without_collector):
    arena = make_arena()
    slab, view = deliver(arena)
    slab.is_spent = True
    del view
    assert arena.held == 0
    assert is_closed(slab)


def test_a_spent_slab_is_given_up_after_a_copy(make_arena):
    arena = make_arena()
    slab = arena.reserve(0)
    slab.is_spent = True
    arena.open(fill(slab), BIG, 10)
    arena.copied(slab)
    assert is_closed(slab)


def test_what_is_given_up_is_told_once(make_arena):
    arena = make_arena()
    slab = arena.reserve(0)
    slab.is_spent = True
    arena.cancel(slab)
    assert arena.given_up() == [0]
    assert arena.given_up() == []


def test_a_fork_spends_what_is_held(make_arena, without_collector):
    arena = make_arena()
    held, view = deliver(arena)
    module._before_fork()
    del view
    assert arena.held == 0
    assert is_closed(held)


def test_a_fork_does_not_spend_what_is_free_or_out(make_arena, without_collector):
    arena = make_arena()
    out = arena.reserve(0)
    free, view = deliver(arena)
    del view
    arena.spend_held()
    assert not out.is_spent
    assert not free.is_spent


def test_a_real_fork_calls_the_hook(make_arena):
    arena = make_arena()
    slab, view = deliver(arena)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: a fork among threads
        child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert slab.is_spent
    del view


def test_an_arena_that_is_gone_is_not_asked_at_a_fork(make_arena, without_collector):
    before = len(module._arenas)
    arena = Arena(1)
    arena.close()
    del arena
    assert len(module._arenas) == before


# ---- between epochs, and the end ----------------------------------------------------------------


def test_an_idle_arena_keeps_a_little_warm_memory(make_arena, monkeypatch):
    monkeypatch.setattr(module, "IDLE_BYTES", 2 * BIG)
    arena = make_arena()
    slabs = [arena.reserve(worker) for worker in range(4)]
    for slab in slabs:
        arena.open(fill(slab), BIG, 10)
        arena.copied(slab)
    arena.idle()
    assert [is_closed(slab) for slab in slabs] == [False, False, True, True]
    assert arena.nbytes == 2 * BIG


def test_an_idle_arena_keeps_small_slabs_beside_one_that_is_too_large(make_arena, monkeypatch):
    monkeypatch.setattr(module, "IDLE_BYTES", 2 * BIG)
    arena = make_arena()
    large, small = arena.reserve(0), arena.reserve(1)
    for slab, nbytes in ((large, 3 * BIG), (small, BIG)):
        arena.open(fill(slab, nbytes), nbytes, 10)
        arena.copied(slab)
    arena.idle()
    assert [is_closed(large), is_closed(small)] == [True, False]


def test_an_idle_arena_forgets_who_knew_its_slabs(make_arena):
    arena = make_arena()
    held, view = deliver(arena)
    free = arena.reserve(0)
    for slab in (held, free):
        slab.known_to.add(3)
        slab.worker = 3
    arena.cancel(free)
    arena.idle()
    assert [(slab.known_to, slab.worker) for slab in (held, free)] == [(set(), -1)] * 2
    del view


def test_closing_gives_every_slab_back(make_arena):
    arena = make_arena()
    slabs = [arena.reserve(0) for _ in range(3)]
    arena.cancel(slabs[0])
    arena.close()
    assert all(is_closed(slab) for slab in slabs)
    assert arena.nbytes == 0


def test_an_arena_that_nobody_holds_gives_every_slab_back(without_collector):
    arena = Arena(1 << 40)
    slab, view = deliver(arena, value=7)
    out = arena.reserve(0)
    del arena
    assert is_closed(slab)
    assert is_closed(out)
    assert view[0] == 7


def test_closing_twice_is_closing_once(make_arena):
    arena = make_arena()
    arena.reserve(0)
    arena.close()
    arena.close()


def test_a_held_batch_outlives_its_arena(make_arena):
    arena = make_arena()
    _, view = deliver(arena, value=7)
    array = np.frombuffer(view, np.uint8)
    del view
    arena.close()
    assert (array == 7).all()
    array[:] = 1


def test_a_batch_that_dies_after_its_arena_is_no_trouble(make_arena, without_collector):
    arena = make_arena()
    _, view = deliver(arena)
    arena.close()
    del view
    assert arena.held == 0


def test_a_slab_that_comes_home_to_a_closed_arena_is_given_back(make_arena):
    arena = make_arena()
    slab = arena.reserve(0)
    arena.close()
    arena.cancel(slab)
    assert arena.nbytes == 0
    assert arena._free == []


# ---- pinned -------------------------------------------------------------------------------------


class FakePinner:
    def __init__(self):
        self.registered, self.settling, self.is_closed = [], [], False

    def register(self, mapping):
        self.registered.append(mapping.nbytes)

    def settle(self, slab):
        self.settling.append(slab)

    def close(self):
        self.is_closed = True


@pytest.fixture
def pinned(monkeypatch):
    pinner = FakePinner()
    monkeypatch.setattr(module, "_pinner", lambda returned: pinner)
    arena = Arena(1 << 40, is_pinned=True)
    yield arena, pinner
    arena.close()


def test_a_pinned_slab_is_registered_once_per_mapping(pinned, without_collector):
    arena, pinner = pinned
    for _ in range(2):
        slab, view = deliver(arena)
        del view
        arena._returned.append(pinner.settling.pop())
    assert slab.number == 0
    assert pinner.registered == [BIG]


def test_a_pinned_slab_is_not_free_before_the_device_is_done(pinned, without_collector):
    arena, pinner = pinned
    slab, view = deliver(arena)
    del view
    assert pinner.settling == [slab.number]
    assert arena.reserve(0) is not slab
    arena._returned.append(slab.number)
    assert arena.reserve(0) is slab


def test_closing_a_pinned_arena_ends_its_thread(pinned):
    arena, pinner = pinned
    arena.close()
    assert pinner.is_closed
