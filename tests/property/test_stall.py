"""Whatever is seen of a worker, one that moves is left alone, and a stuck one is found in time."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from penstock._engine.stall import MOST_STEP_S, Observation, Patience, Verdict

CALLS = st.sampled_from([None, (), (0, 3, 0, 1), (230, 0, 0, 1), (202, 0, 128, 2, 0)])
SEEN = st.builds(
    Observation,
    pid=st.just(7),
    progress=st.tuples(st.integers(0, 2), st.integers(0, 1), st.sampled_from(["fetching", "idle"])),
    cpu_s=st.sampled_from([1.0, 1.01]),
    io_bytes=st.integers(0, 1),
    wakes=st.integers(0, 1),
    state=st.sampled_from("RSDT"),
    wchan=st.sampled_from(["", "pipe_read", "hrtimer_nanosleep"]),
    call=CALLS,
    other_calls=st.lists(CALLS.filter(bool), max_size=2).map(tuple),
)
STEPS = st.floats(0.01, 100)
LIMIT_S = 8.0


@given(st.lists(st.tuples(STEPS, SEEN)))
def test_a_worker_that_moves_at_every_look_is_left_alone(looks):
    patience, now = Patience(0.001, 0.001, "x86_64"), 0.0
    for turn, (step, seen) in enumerate(looks):
        now += step
        assert patience.judge(now, seen._replace(io_bytes=turn)) is Verdict.NOTHING


@given(st.lists(st.tuples(STEPS, SEEN)), STEPS)
def test_a_worker_that_wakes_at_every_look_is_never_stuck(looks, limit_s):
    patience, now = Patience(0.001, limit_s, "x86_64"), 0.0
    for turn, (step, seen) in enumerate(looks):
        now += step
        moving = seen._replace(wakes=turn, state="S")
        assert patience.judge(now, moving) is not Verdict.STUCK


@given(st.lists(st.tuples(STEPS, SEEN), max_size=9), st.floats(0.1, 3))
def test_a_worker_that_stops_is_found_whatever_came_before(looks, step_s):
    patience, now = Patience(None, LIMIT_S, "x86_64"), 0.0
    for step, seen in looks:
        now += step
        patience.judge(now, seen)
    stopped = Observation(7, (9, 9), 0.0, 0, 0, "T", "")
    patience.judge(now := now + step_s, stopped)
    start = now
    while patience.judge(now := now + step_s, stopped) is not Verdict.STUCK:
        assert now - start < LIMIT_S + step_s
    assert now - start >= LIMIT_S - 1e-6


@given(st.lists(st.tuples(STEPS, SEEN)))
def test_nobody_is_stuck_before_enough_looks_at_the_same_thing(looks):
    patience, now, same, last = Patience(None, LIMIT_S, "x86_64"), 0.0, 0.0, None
    for step, seen in looks:
        now += step
        same = 0.0 if _differs(last, seen) else same + min(step, MOST_STEP_S)
        last = seen
        if patience.judge(now, seen) is Verdict.STUCK:
            assert same >= LIMIT_S - 1e-6


def _differs(last, seen):
    return last is None or (last.progress, last.cpu_s, last.io_bytes) != (
        seen.progress,
        seen.cpu_s,
        seen.io_bytes,
    )


@given(st.lists(st.tuples(STEPS, SEEN)))
def test_an_attempt_of_a_ticket_is_warned_about_once(looks):
    patience, now, warned = Patience(0.001, None, "x86_64"), 0.0, []
    for step, seen in looks:
        now += step
        if patience.judge(now, seen) is Verdict.WARN:
            warned.append(seen.progress[:2])
    assert all(one != other for one, other in itertools.pairwise(warned))
