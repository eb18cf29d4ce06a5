"""What rules may read."""

from __future__ import annotations

from penstock._clinic.facts import Facts
from penstock._lab.record import FetchSeen, IteratorSeen, SampleSeen, Trial

KEY = "train.py:9#0"


def rank(pid, worker):
    return (
        IteratorSeen(KEY, pid=pid, workers=(worker,)),
        SampleSeen(KEY, pid=worker, index=0, digest=str(pid)),
        FetchSeen(KEY, pid=worker),
    )


def trial(*ranks):
    iterators, samples, fetches = zip(*ranks, strict=True)
    return Trial(iterators=iterators, samples=samples, fetches=fetches)


def test_of_several_ranks_one_can_be_read_alone():
    facts = Facts(observed=trial(rank(10, 11), rank(20, 21)), ladder=(trial(rank(30, 31), rank(40, 41)),))

    assert facts.has_ranks
    alone = facts.one_rank
    assert [seen.pid for seen in alone.observed.iterators] == [10]
    assert [seen.digest for seen in alone.observed.samples] == ["10"]
    assert [seen.pid for seen in alone.ladder[0].fetches] == [31]


def test_a_loader_inside_a_worker_makes_no_rank():
    nested = Trial(iterators=(IteratorSeen(KEY, pid=10, workers=(11,)), IteratorSeen("inner", pid=11)))

    facts = Facts(observed=nested)

    assert not facts.has_ranks
    assert facts.one_rank is facts
