"""PS815 uneven-ranks."""

from __future__ import annotations

import dataclasses

from penstock._clinic.facts import Facts
from penstock._clinic.rules.endings.ps815_uneven_ranks import UnevenRanks
from penstock._lab.record import (
    Failure,
    Frame,
    IteratorSeen,
    LoaderSeen,
    ProcessLook,
    Site,
    ThreadLook,
    Trial,
)

KEY = "train.py:20#0"
TIMED_OUT = Failure(
    type="RuntimeError",
    text="[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 8000ms for recv operation to complete",
    phase="program",
    pid=10,
    is_fatal=True,
)


def loader(pid, rank, length):
    return LoaderSeen(key=KEY, site=Site("train.py", 20), name="loader", length=length, pid=pid, rank=rank)


def one_pass(pid, batches, end, *, waits=0.1):
    return IteratorSeen(
        loader=KEY,
        pid=pid,
        batches=batches,
        end=end,
        began_s=4.0,
        waits=(waits,) * batches,
        steps=(0.1,) * batches,
    )


FAILED = Trial(
    outcome="error",
    loaders=(loader(10, 0, 8), loader(11, 1, 6)),
    iterators=(one_pass(10, 7, "open"), one_pass(11, 6, "exhausted")),
    failures=(TIMED_OUT,),
)


def found(trial):
    return list(UnevenRanks().check(Facts(observed=trial)))


def test_a_collective_that_fails_while_one_rank_has_ended_is_found():
    (finding,) = found(FAILED)

    assert finding.message == (
        "rank 1 has 6 batches where rank 0 has 8, and rank 0 waits for it in a collective operation"
    )
    assert finding.severity == "error"
    assert finding.stopped_at_s == 4.0 + 1.4
    (experiment,) = finding.experiments
    assert experiment.change.mends == ("equal-ranks",)
    assert experiment.change.env == {"PENSTOCK_MOST_BATCHES": "6"}
    assert (experiment.drive, experiment.measure) == ("script", "gone")


def test_a_rank_that_hangs_in_a_collective_is_found_by_its_stack():
    thread = ThreadLook(
        tid=10, frames=(Frame("all_reduce", "/site-packages/torch/distributed/distributed_c10d.py", 9),)
    )
    hung = dataclasses.replace(
        FAILED, outcome="hang", failures=(), looks=(ProcessLook(10, role="rank", threads=(thread,)),)
    )

    (finding,) = found(hung)

    assert finding.evidence[1].source == "stacks"


def test_a_failure_that_the_program_only_printed_counts_too():
    (finding,) = found(
        dataclasses.replace(
            FAILED, outcome="ok", failures=(), stdout="rank 0: Timed out waiting 8000ms for recv operation"
        )
    )

    assert finding.stopped_at_s is None


def test_ranks_without_a_number_are_processes():
    loaders = tuple(dataclasses.replace(each, rank=None) for each in FAILED.loaders)

    (finding,) = found(dataclasses.replace(FAILED, loaders=loaders))

    assert finding.message.startswith("process 1 has 6 batches where process 0 has 8")


def test_uneven_ranks_that_join_are_well():
    assert not found(dataclasses.replace(FAILED, outcome="ok", failures=()))


def test_even_ranks_whose_network_fails_have_another_illness():
    even = (loader(10, 0, 8), loader(11, 1, 8))
    passes = (one_pass(10, 7, "open"), one_pass(11, 6, "open"))

    assert not found(dataclasses.replace(FAILED, loaders=even, iterators=passes))


def test_one_process_has_no_other_rank():
    assert not found(dataclasses.replace(FAILED, loaders=FAILED.loaders[:1], iterators=FAILED.iterators[:1]))
