"""The arena against a dictionary: a slab never goes out while somebody can see it."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from penstock._arena import arena as module
from penstock._arena.arena import COPY_BELOW, Arena

UNIT = COPY_BELOW  # the smallest batch that is held
SIZES = st.sampled_from([1, UNIT - 1, UNIT, UNIT + 1, 3 * UNIT, 8 * UNIT])


class ArenaMachine(RuleBasedStateMachine):
    """Tickets, answers, batches that are kept, forks and forgetful workers, in any order."""

    out = Bundle("out")
    held = Bundle("held")

    def __init__(self):
        super().__init__()
        self.where = {}  # slab to "free", "out", "held" or "gone"
        self.pattern = 0

    @initialize(budget=st.sampled_from([1, 4 * UNIT, 20 * UNIT, 1 << 40]), most=st.sampled_from([2, 64]))
    def begin(self, budget, most):
        self.most, module.MOST_HELD = module.MOST_HELD, most
        self.arena = Arena(budget)

    def come_home(self, slab):
        # Beyond the budget, what comes home is given up, too: its descriptor tells.
        is_over = slab.segment.fd == -1 and not slab.is_spent
        assert not is_over or self.arena.nbytes + slab.nbytes > self.arena.budget
        self.where[slab] = "gone" if slab.is_spent or is_over else "free"

    @rule(target=out, worker=st.integers(0, 2))
    def reserve(self, worker):
        slab = self.arena.reserve(worker)
        if slab is None:
            # Stuck only behind a slab that is out: it will come home.
            assert "out" in self.where.values()
            return multiple()
        assert self.where.get(slab, "free") == "free", "a slab went out that was not at home"
        assert not slab.is_spent
        assert slab.segment.fd >= 0
        if slab not in self.where:
            assert "free" not in self.where.values(), "a new slab although one was free"
        slab.worker = worker
        self.where[slab] = "out"
        return slab

    @rule(slab=consumes(out), is_kept=st.booleans())
    def cancel(self, slab, is_kept):
        slab.is_spent |= is_kept
        self.arena.cancel(slab)
        self.come_home(slab)

    @rule(target=held, slab=consumes(out), nbytes=SIZES, is_kept=st.booleans())
    def deliver(self, slab, nbytes, is_kept):
        self.pattern = self.pattern % 250 + 1
        slab.segment.reserve(nbytes)
        os.pwrite(slab.segment.fd, bytes([self.pattern]) * nbytes, 0)
        slab.is_spent |= is_kept
        view, is_held = self.arena.open(slab, slab.segment.nbytes, nbytes)
        assert view[0] == view[nbytes - 1] == self.pattern
        assert not is_held or nbytes >= COPY_BELOW
        if not is_held:
            self.arena.copied(slab)
            self.come_home(slab)
            return multiple()
        self.where[slab] = "held"
        return [slab, view, nbytes, self.pattern]

    @rule(batch=held)
    def look(self, batch):
        _, view, nbytes, pattern = batch
        assert view[0] == view[nbytes // 2] == view[nbytes - 1] == pattern, "a held batch was overwritten"

    @rule(batch=consumes(held))
    def drop(self, batch):
        self.look(batch)
        slab = batch[0]
        batch.clear()
        assert self.arena.held >= 0  # it takes back what was released
        self.come_home(slab)

    @rule()
    def fork(self):
        module._before_fork()
        for slab, place in self.where.items():
            assert slab.is_spent or place != "held"

    @rule()
    def news(self):
        given_up = self.arena.given_up()
        assert len(given_up) == len(set(given_up))
        gone = {slab.number for slab, place in self.where.items() if place == "gone"}
        assert set(given_up) <= gone

    @invariant()
    def it_counts_as_we_do(self):
        if hasattr(self, "arena"):
            assert self.arena.held == list(self.where.values()).count("held")
            assert self.arena.nbytes == sum(
                slab.nbytes for slab, place in self.where.items() if place != "gone"
            )
            assert self.arena.held <= module.MOST_HELD

    @invariant()
    def what_is_gone_is_closed(self):
        for slab, place in self.where.items():
            assert (slab.segment.fd == -1) == (place == "gone")

    def teardown(self):
        if hasattr(self, "arena"):
            module.MOST_HELD = self.most
            self.arena.close()
            self.arena.close()
            assert all(slab.segment.fd == -1 for slab in self.where)


TestArena = ArenaMachine.TestCase


def travel(arena, nbytes):
    """One batch from ticket to consumer: what the consumer keeps, None for a copy."""
    slab = arena.reserve(0)
    assert slab is not None, "stuck"
    slab.segment.reserve(nbytes)
    view, is_held = arena.open(slab, slab.segment.nbytes, nbytes)
    if is_held:
        return view
    arena.copied(slab)
    return None


@given(
    budget=st.integers(1, 12 * UNIT),
    nbytes=st.sampled_from([UNIT, 2 * UNIT, 5 * UNIT]),
    keeps=st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=30),
)
def test_a_consumer_may_keep_what_it_likes(budget, nbytes, keeps):
    arena, kept = Arena(budget), []
    try:
        for is_kept, drop in keeps:
            view = travel(arena, nbytes)
            if is_kept:
                kept.append(view)
            del view
            if drop < len(kept):
                del kept[drop]
            assert arena.nbytes <= max(budget, nbytes) + nbytes
    finally:
        kept.clear()
        arena.close()


BATCHES = st.lists(st.sampled_from([UNIT, 2 * UNIT, 6 * UNIT]), max_size=20)


def run(arena, batches, depth, keeps=()):
    """Batches through an arena with `depth` of them under way; yields after each that came home."""
    waiting, out, kept, keeps = list(batches), [], [], iter(keeps)
    while waiting or out:
        slab = arena.reserve(0) if waiting and len(out) < depth else None
        if slab is not None:
            out.append((slab, waiting.pop(), arena.expected))
            continue
        slab, nbytes, expected = out.pop(0)
        slab.segment.reserve(max(nbytes, expected))  # as a worker does
        view, is_held = arena.open(slab, slab.segment.nbytes, nbytes)
        if is_held and next(keeps, False):
            kept.append(view)
        del view
        if not is_held:
            arena.copied(slab)
        arena.held  # noqa: B018 - takes in what was released
        yield


@given(
    budget=st.integers(1, 40 * UNIT),
    batches=BATCHES,
    depth=st.integers(1, 6),
    keeps=st.lists(st.booleans(), max_size=20),
)
def test_the_bytes_stay_within_the_budget_except_for_one_batch(budget, batches, depth, keeps):
    arena, largest = Arena(budget), 6 * UNIT
    try:
        travel(arena, largest)  # what a batch can take is known
        for _ in run(arena, batches, depth, keeps):
            assert arena.nbytes <= max(budget, largest) + largest
    finally:
        arena.close()


@given(budget=st.integers(1, 40 * UNIT), batches=BATCHES, depth=st.integers(1, 6))
def test_batches_that_grew_are_within_the_budget_when_all_have_come_home(budget, batches, depth):
    arena = Arena(budget)
    try:
        for _ in run(arena, batches, depth):
            pass
        assert arena.nbytes <= max(budget, *batches, 0)
    finally:
        arena.close()
