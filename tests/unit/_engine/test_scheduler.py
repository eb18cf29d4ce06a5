"""Events in, decisions out."""

from __future__ import annotations

import pytest

from penstock._engine.scheduler import Scheduler


def started(workers, depth, *, in_order=True, tickets=None):
    """A scheduler at the start of an epoch, all tickets with their workers, and the workers' numbers."""
    scheduler = Scheduler(workers, depth, in_order=in_order)
    plans = [scheduler.plan([index]) for index in range(workers * depth if tickets is None else tickets)]
    for number, _ in plans:
        scheduler.ledger.assign(number)
    return scheduler, plans


def play(scheduler, script):
    """Run a script of events; return what the scheduler decided.

    `fill 3`, `exhaust 1`, `lose 0` are events; `next` asks for the number to deliver and delivers it;
    `plan` draws a ticket.
    """
    decisions = []
    for line in script:
        word, *rest = line.split()
        number = int(rest[0]) if rest else -1
        if word == "fill":
            decisions.append(scheduler.fill(number, 0))
        elif word == "exhaust":
            decisions.append(scheduler.exhaust(number))
        elif word == "lose":
            decisions.append(scheduler.lose(number))
        elif word == "plan":
            planned = scheduler.plan(None)
            if planned is not None:
                scheduler.ledger.assign(planned[0])
            decisions.append(planned)
        else:
            ready = scheduler.next_ready()
            if ready is not None:
                scheduler.deliver(ready)
            decisions.append(ready)
    return decisions


# ---- who gets a ticket --------------------------------------------------------------------------


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize(("workers", "depth"), [(1, 1), (1, 3), (2, 2), (3, 2), (4, 1)])
def test_tickets_go_round_the_workers_in_turn(workers, depth, in_order):
    _, plans = started(workers, depth, in_order=in_order)
    assert plans == [(number, number % workers) for number in range(workers * depth)]


TABLES = {
    # in order: the ticket after each delivery goes to the worker that has just been relieved
    "in order": (
        (2, 2, True),
        ["fill 1", "next", "fill 0", "next", "plan", "next", "plan", "next", "fill 2", "next"],
        [True, None, True, 0, (4, 0), 1, (5, 1), None, True, 2],
    ),
    # in order, one slow worker: what is ready waits for its turn
    "a slow worker holds the others up": (
        (2, 2, True),
        ["fill 1", "fill 3", "next", "fill 0", "next", "next", "next", "fill 2", "next", "next"],
        [True, True, None, True, 0, 1, None, True, 2, 3],
    ),
    # out of order: as they arrive, and a worker takes more only while it has room
    "as they arrive": (
        (2, 2, False),
        [
            "fill 1",
            "next",
            "plan",
            "fill 3",
            "next",
            "plan",
            "fill 4",
            "fill 0",
            "next",
            "next",
            "plan",
            "plan",
        ],
        [True, 1, (4, 1), True, 3, (5, 1), True, True, 4, 0, (6, 0), (7, 1)],
    ),
    "nobody has room": (
        (2, 1, False),
        ["plan", "fill 0", "plan", "next", "plan"],
        [None, True, None, 0, (2, 0)],
    ),
    # an exhausted worker's answers still count, what it has not answered is void
    "an exhausted worker": (
        (2, 2, True),
        ["fill 0", "exhaust 0", "fill 1", "next", "next", "next", "fill 3", "next", "next"],
        [True, [2], True, 0, 1, None, True, 3, None],
    ),
    "an exhausted worker gets no more tickets": (
        (2, 2, True),
        ["exhaust 0", "plan", "plan"],
        [[0, 2], (4, 1), (5, 1)],
    ),
    "all workers are exhausted": (
        (2, 2, True),
        ["exhaust 1", "exhaust 0", "plan", "next"],
        [[1, 3], [0, 2], None, None],
    ),
    "an exhausted worker leaves its share to the others": (
        (2, 2, False),
        ["exhaust 0", "plan", "plan", "plan"],
        [[0, 2], (4, 1), (5, 1), None],
    ),
    "a late answer of an exhausted worker is stale": (
        (1, 2, True),
        ["exhaust 0", "fill 0", "next"],
        [[0, 1], False, None],
    ),
    "an answer comes twice": (
        (1, 2, True),
        ["fill 0", "fill 0", "next", "fill 0"],
        [True, False, 0, False],
    ),
    "a lost worker's tickets are to be done again": (
        (2, 2, True),
        ["fill 0", "lose 0", "lose 1"],
        [True, [2], [1, 3]],
    ),
}


@pytest.mark.parametrize(("setting", "script", "decisions"), TABLES.values(), ids=TABLES)
def test_events_lead_to_decisions(setting, script, decisions):
    workers, depth, in_order = setting
    scheduler, _ = started(workers, depth, in_order=in_order)
    assert play(scheduler, script) == decisions


# ---- what is out --------------------------------------------------------------------------------


def test_what_is_out_is_counted_until_delivery():
    scheduler, _ = started(2, 2)
    assert scheduler.outstanding == 4
    play(scheduler, ["fill 0"])
    assert scheduler.outstanding == 4
    play(scheduler, ["next"])
    assert scheduler.outstanding == 3


def test_void_tickets_are_not_out():
    scheduler, _ = started(2, 2)
    play(scheduler, ["exhaust 0", "exhaust 1"])
    assert scheduler.outstanding == 0


def test_nothing_is_ready_before_anything_is_planned():
    assert Scheduler(2, 2, in_order=True).next_ready() is None
    assert Scheduler(2, 2, in_order=False).next_ready() is None


def test_an_epoch_shorter_than_the_workers_ends():
    scheduler, _ = started(4, 2, tickets=2)
    assert play(scheduler, ["fill 1", "fill 0", "next", "next", "next"]) == [True, True, 0, 1, None]
    assert scheduler.outstanding == 0


def test_the_tickets_of_a_worker_are_those_it_has_not_answered():
    scheduler, _ = started(2, 3)
    play(scheduler, ["fill 2"])
    assert scheduler.tickets_of(0) == [0, 4]
    assert scheduler.tickets_of(1) == [1, 3, 5]


def test_a_delivery_says_who_made_the_batch():
    scheduler, _ = started(3, 1)
    play(scheduler, ["fill 0"])
    assert scheduler.owner(0) == 0
    assert scheduler.deliver(0) == 0


def test_a_worker_is_active_until_it_is_exhausted():
    scheduler, _ = started(2, 1)
    scheduler.exhaust(1)
    assert [scheduler.is_active(worker) for worker in range(2)] == [True, False]


def test_a_ticket_keeps_what_the_sampler_drew():
    scheduler = Scheduler(1, 1, in_order=True)
    scheduler.plan(["anything"])
    assert scheduler.ledger.peek(0)[0].indices == ["anything"]


def test_a_lost_ticket_is_answered_by_its_second_attempt():
    scheduler, _ = started(1, 1)
    scheduler.lose(0)
    scheduler.ledger.assign(0)
    assert scheduler.fill(0, 0) is False
    assert scheduler.fill(0, 1) is True


def test_a_delivered_ticket_is_forgotten():
    scheduler, _ = started(1, 1)
    play(scheduler, ["fill 0", "next"])
    with pytest.raises(KeyError):
        scheduler.owner(0)
