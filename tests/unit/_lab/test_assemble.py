"""Events and what was seen from outside become one trial."""

from __future__ import annotations

import dataclasses

import pytest

from penstock._lab.assemble import LONG_WAIT_S, Seen, assemble, outcome
from penstock._lab.plan import Plan
from penstock._lab.record import (
    Death,
    Failure,
    Frame,
    HostSeen,
    IteratorSeen,
    ProcessLook,
    ThreadLook,
    Trial,
    Vitals,
)

START = 1000.0
SEEN = Seen(began_at=START, ended_at=START + 20, main=5)
KEY = "train.py:9#0"


def event(kind, at, pid=5, **fields):
    return {"kind": kind, "pid": pid, "at": START + at, **fields}


def of_loader(kind, at, pid=5, **fields):
    return event(kind, at, pid, loader=KEY, number=0, **fields)


def build(*events, plan=None, **seen):
    fields = {name: getattr(SEEN, name) for name in ("began_at", "ended_at", "main")}
    return assemble(plan or Plan(), events, Seen(**{**fields, **seen}))


PASS = [
    of_loader("iter", 3.0, threads=["pump"], native_threads=4, live=1),
    of_loader("started", 3.5, workers=[7, 8]),
    of_loader("next", 3.6, batch=0),
    of_loader("batch", 4.0, batch=0, wait=0.4, step=None, tensors=2, nbytes=64, pickled=3, kept=0, samples=4),
    of_loader("batch", 4.5, batch=1, wait=0.1, step=0.4, tensors=2, nbytes=32, pickled=3, kept=1, samples=2),
    of_loader("ended", 5.0, end="exhausted", batches=2, shutdown=0.2),
]


def test_a_pass_is_put_together_from_its_events():
    assert build(*PASS).iterators == (
        IteratorSeen(
            loader=KEY, pid=5, began_s=3.0, start_s=0.5, first_s=1.0, batches=2, waits=(0.4, 0.1),
            steps=(0.4,),
            end="exhausted", ended_s=5.0, shutdown_s=0.2, workers=(7, 8), threads=("pump",), native_threads=4,
            tensors_per_batch=2, batch_nbytes=64, pickled_nbytes=3, kept=1, live_iterators=1, samples=6,
        ),
    )  # fmt: skip


def test_events_may_come_in_any_order():
    assert build(*reversed(PASS)) == build(*PASS)


def test_two_ranks_with_the_same_names_stay_apart():
    other = [{**each, "pid": 6} for each in PASS[:4]]
    assert [(seen.pid, seen.batches) for seen in build(*PASS, *other).iterators] == [(5, 2), (6, 1)]


def test_a_wait_that_did_not_end_has_a_beginning():
    assert build(*PASS[:3]).iterators[0].waiting_since_s == pytest.approx(3.6)
    assert build(*PASS[:4]).iterators[0].waiting_since_s is None


def test_a_start_that_did_not_end_is_a_wait():
    assert build(*PASS[:1]).iterators[0].waiting_since_s == pytest.approx(3.0)


def test_a_stack_in_next_tells_of_a_wait_that_was_not_logged():
    frame = Frame("_next_data", "torch/utils/data/dataloader.py", 1)
    look = ProcessLook(pid=5, role="main", threads=(ThreadLook(tid=5, frames=(frame,)),))
    assert build(*PASS[:4], looks=(look,)).iterators[0].waiting_since_s == pytest.approx(4.0)


def test_malformed_events_spoil_nothing_else():
    broken = [
        of_loader("batch", 4.2, wait="soon"),
        event("batch", 4.2),
        event("sample", 4.2),
        event("loader", 4.2, settings=3),
        event("died", 4.2, child="x"),
        event("never-heard-of", 4.2),
        event("things", 4.2, loader="none", things=[{"path": "x"}, 5]),
    ]
    trial = build(*PASS, *broken)
    assert trial.iterators[0].waits == (0.4, 0.1)
    assert trial.loaders == trial.samples == trial.deaths == ()


CACHE = {"path": "dataset.x", "kind": "cache", "type": "dict"}


def test_loaders_are_told_once_with_their_latest_things():
    trial = build(
        event("loader", 1.0, key=KEY, length=3, settings={"num_workers": 2}),
        event("loader", 2.0, key=KEY, length=4, settings={"num_workers": 2}),
        event("things", 3.0, loader=KEY, things=[{**CACHE, "count": 1}]),
        event("things", 4.0, pid=7, loader=KEY, things=[{**CACHE, "count": 9}]),
    )
    (loader,) = trial.loaders
    assert (loader.length, loader.settings, loader.things[0].count) == (4, {"num_workers": 2}, 9)


def test_an_index_can_be_hashed():
    trial = build(event("sample", 1.0, loader=KEY, index=[1, [2, 3]], site=None))
    assert trial.samples[0].index == (1, (2, 3))


def test_times_of_fetches_count_from_the_start():
    trial = build(event("fetch", 2.0, loader=KEY, began_s=START + 1.5, indices=[[0, 1], 2]))
    assert (trial.fetches[0].began_s, trial.fetches[0].indices) == (pytest.approx(1.5), ((0, 1), 2))


def test_failures_keep_their_time_and_place():
    site = {"file": "train.py", "line": 4}
    trial = build(event("failed", 2.0, type="ValueError", text="bad", phase="sample", index=[3], site=site))
    (failure,) = trial.failures
    assert (failure.at_s, failure.index, failure.site.line) == (pytest.approx(2.0), (3,), 4)


def test_the_host_learns_of_torch():
    trial = build(event("torch", 1.0, version="2.13", default_start_method="fork", has_cuda=True, cpus=8))
    assert (trial.host.torch, trial.host.has_cuda, trial.host.cores_seen) == ("2.13", True, 8)


def test_warnings_are_told_once():
    trial = build(event("warned", 1.0, text="old"), event("warned", 2.0, text="old"))
    assert trial.warnings == ("old",)


# ---- deaths ------------------------------------------------------------------------------------


def test_a_death_that_the_parent_told_names_the_sample_in_hand():
    trial = build(
        *PASS[:4], of_loader("died", 4.6, worker=1, child=8, status=-9), in_hand={8: (KEY, 0, 1, [13])}
    )
    assert trial.deaths == (
        Death(pid=8, worker=1, loader=KEY, status=-9, index=(13,), at_s=pytest.approx(4.6)),
    )


def test_a_worker_that_should_have_gone_on_is_dead_even_with_status_zero():
    (death,) = build(*PASS[:4], of_loader("died", 4.6, worker=1, child=8, status=0)).deaths
    assert (death.pid, death.status) == (8, 0)


def test_a_dead_worker_that_was_found_counts():
    trial = build(*PASS[:4], statuses={8: (-11, START + 4.7)})
    assert trial.deaths == (Death(pid=8, worker=1, loader=KEY, status=-11, at_s=pytest.approx(4.7)),)


def test_workers_that_the_program_kills_with_their_own_process_are_no_deaths():
    of_a_child = [{**each, "pid": 6} for each in PASS[:4]]
    assert build(*of_a_child, statuses={8: (-9, START + 4.7)}).deaths == ()
    assert build(*of_a_child, statuses={8: (-11, START + 4.7)}).deaths
    assert build(*of_a_child, statuses={8: (-9, START + 4.7)}, host=HostSeen(oom_kills=1)).deaths
    assert build(*PASS[:4], statuses={8: (-9, START + 4.7)}).deaths


@pytest.mark.parametrize("status", [0, -15])
def test_a_worker_that_its_loader_has_ended_is_no_death(status):
    assert build(*PASS, statuses={8: (status, START + 5)}).deaths == ()


def test_a_worker_that_torch_ended_because_it_was_busy_is_no_death():
    assert build(*PASS, of_loader("died", 5.1, worker=1, child=8, status=-15)).deaths == ()


def test_a_process_that_is_no_worker_may_end_as_it_likes():
    assert build(*PASS, statuses={99: (3, START + 5)}).deaths == ()


def test_a_worker_that_torch_misses_is_dead_even_with_status_zero():
    text = "DataLoader worker (pid(s) 7, 8) exited unexpectedly"
    trial = build(
        *PASS[:4], event("failed", 9.0, type="RuntimeError", text=text), statuses={8: (0, START + 4)}
    )
    assert [(death.pid, death.worker, death.status) for death in trial.deaths] == [(7, 0, None), (8, 1, 0)]


def test_a_program_killed_by_a_signal_is_a_death():
    trial = build(status=-11, statuses={5: (-11, START + 1)})
    assert trial.deaths == (Death(pid=5, status=-11, at_s=pytest.approx(1.0)),)
    assert trial.outcome == "crash"


# ---- outcomes ----------------------------------------------------------------------------------

WAITING = IteratorSeen(KEY, waiting_since_s=1.0, waits=(0.1,))
KILLED = Death(pid=8, status=-9)


@pytest.mark.parametrize(
    ("trial", "expected"),
    [
        (Trial(status=0), "ok"),
        (Trial(ended_by="enough"), "ok"),
        (Trial(status=1), "error"),
        (Trial(status=0, failures=(Failure("ValueError", is_fatal=True),)), "ok"),
        (Trial(Plan(drive="loader"), status=0, failures=(Failure("ValueError", is_fatal=True),)), "error"),
        (Trial(ended_by="output"), "error"),
        (Trial(ended_by="processes"), "error"),
        (Trial(ended_by="stall"), "hang"),
        (Trial(ended_by="time", seconds=30), "ok"),
        (Trial(ended_by="time", seconds=1 + LONG_WAIT_S, iterators=(WAITING,)), "hang"),
        (Trial(ended_by="time", seconds=LONG_WAIT_S, iterators=(WAITING,)), "ok"),
        (Trial(status=-6), "crash"),
        (Trial(status=1, deaths=(KILLED,)), "crash"),
        (Trial(status=1, deaths=(KILLED,), host=HostSeen(oom_kills=1)), "oom"),
        (Trial(status=1, host=HostSeen(oom_kills=1)), "error"),
        (Trial(ended_by="memory"), "oom"),
    ],
)
def test_the_outcome(trial, expected):
    assert outcome(trial) == expected


def test_a_silence_that_was_almost_a_stall_is_a_hang_at_the_time_limit():
    assert outcome(Trial(ended_by="time"), is_hung=True) == "hang"


def test_workers_that_are_still_at_it_are_slow():
    late = Trial(ended_by="time", seconds=60, iterators=(WAITING,))
    main, still = ProcessLook(1, role="main", cpu_moved=True), ProcessLook(2, role="worker")
    assert outcome(dataclasses.replace(late, looks=(main, still))) == "hang"
    busy = ProcessLook(3, role="worker", cpu_moved=True)
    assert outcome(dataclasses.replace(late, looks=(main, still, busy))) == "ok"
    assert outcome(dataclasses.replace(late, looks=(main,))) == "ok"


def test_a_slow_loader_with_a_long_wait_is_no_hang():
    slow = IteratorSeen(KEY, waiting_since_s=1.0, waits=(8.0,))
    assert outcome(Trial(ended_by="time", seconds=30, iterators=(slow,))) == "ok"


HEARD = Failure("ValueError", phase="next", at_s=18.0)
RAISED = IteratorSeen(KEY, began_s=2.0, end="raised", ended_s=18.1)


def test_a_program_cut_while_it_ends_of_an_error_has_failed():
    trial = Trial(ended_by="enough", seconds=20, failures=(HEARD,), iterators=(RAISED,))
    assert outcome(trial) == "error"


@pytest.mark.parametrize(
    "later",
    [
        {"iterators": (RAISED, IteratorSeen(KEY, number=1, began_s=19.0))},
        {"iterators": (RAISED, IteratorSeen(KEY, number=1, began_s=19.0, end="exhausted", ended_s=19.5))},
        {"seconds": 40.0},
        {"ended_by": "itself", "status": 0},
        {"failures": (HEARD, dataclasses.replace(HEARD, at_s=HEARD.at_s + 1.0))},
        {"vitals": (Vitals(HEARD.at_s, batches=3), Vitals(HEARD.at_s + 1.0, batches=4))},
    ],
)
def test_a_program_that_went_on_from_an_error_is_well(later):
    trial = Trial(ended_by="enough", seconds=20, failures=(HEARD,), iterators=(RAISED,))
    assert outcome(dataclasses.replace(trial, **later)) == "ok"
