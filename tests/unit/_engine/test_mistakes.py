"""The judge: signs in, warnings and verdicts out."""

from __future__ import annotations

import pytest

from penstock._engine.mistakes import Memory, Mistakes, Told, told_by
from penstock._engine.rng_objects import RngSign

A, B = b"a", b"b"
RNG = RngSign("dataset.rng", b"1", b"2", True, False)


def judge(workers=2, memory=None, *, is_iterable=True, cure=False, is_persistent=False):
    return Mistakes(
        workers, memory or Memory(), is_iterable=is_iterable, cure=cure, is_persistent=is_persistent
    )


def codes(mistakes):
    return [text[1:6] for text in mistakes.findings]


def test_without_cure_nobody_waits_and_nobody_is_told_what_to_do():
    one = judge()
    assert not one.waits
    assert one.hear(Told(0, (A, B), ())) == []
    assert codes(one) == []
    assert one.hear(Told(1, (A, B), ())) == []
    assert codes(one) == ["PS301"]


@pytest.mark.parametrize(("prefix", "is_sharded"), [((A, B), True), ((B, A), False), ((), False)])
def test_with_cure_the_verdict_comes_when_all_have_told(prefix, is_sharded):
    one = judge(cure=True)
    assert one.waits
    assert one.hear(Told(1, (A, B), ())) == []
    assert one.hear(Told(0, prefix, ())) == [(0, is_sharded), (1, is_sharded)]
    assert one.is_sharded is is_sharded
    assert len(one.findings) == is_sharded


def test_a_worker_started_later_gets_the_same_verdict():
    one = judge(cure=True)
    for worker in range(2):
        one.hear(Told(worker, (A, B), ()))
    assert one.hear(Told(1, (A, B), ())) == [(1, True)]


def test_a_lost_worker_is_not_waited_for():
    one = judge(3, cure=True)
    one.hear(Told(0, (A, B), ()))
    assert one.lose(1) == []
    assert one.hear(Told(2, (A, B), ())) == [(0, True), (2, True)]
    assert one.lose(2) == []


def test_one_worker_that_is_left_goes_on_as_it_is():
    one = judge(cure=True)
    one.hear(Told(0, (A, B), ()))
    assert one.lose(1) == [(0, False)]


def test_every_epoch_has_its_own_verdict_and_a_loader_says_it_once():
    memory = Memory()
    for _ in range(2):
        one = judge(memory=memory, cure=True)
        for _ in range(2):
            one.begin()
            assert one.is_sharded is None
            assert one.hear(Told(0, (A, B), ())) == []
            assert one.hear(Told(1, (A, B), ())) == [(0, True), (1, True)]
    assert codes(one) == []
    assert memory.said == {"PS301"}


def test_generators_are_judged_as_workers_tell():
    one = judge(is_iterable=False)
    one.hear(Told(0, (), (RNG,)))
    assert codes(one) == []
    one.hear(Told(1, (), (RNG,)))
    assert codes(one) == ["PS302"]


def test_a_lone_fresh_worker_is_compared_with_the_one_before():
    memory = Memory()
    judge(1, memory, is_iterable=False).hear(Told(0, (), (RNG,)))
    kept = judge(1, memory, is_iterable=False, is_persistent=True)
    kept.hear(Told(0, (), (RNG,)))
    assert codes(kept) == []
    fresh = judge(1, memory, is_iterable=False)
    fresh.hear(Told(0, (), (RNG,)))
    assert codes(fresh) == ["PS302"]


def test_what_was_seeded_is_said():
    one = judge(is_iterable=False, cure=True)
    one.hear(Told(0, (), (RNG._replace(is_reseeded=True),)))
    assert "cure=True: it was seeded" in one.findings[0]


def test_signs_are_rebuilt_from_their_fields():
    assert told_by((1, (A,), (tuple(RNG),))) == Told(1, (A,), (RNG,))
