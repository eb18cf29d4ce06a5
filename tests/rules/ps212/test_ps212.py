"""PS212 fork-out-of-memory."""

from __future__ import annotations

from penstock._clinic.rules.limits.ps212_fork_out_of_memory import ForkOutOfMemory
from tests.rules.seen import GB, facts, failure, loader, passed, trial, vitals


def found(observed):
    return list(ForkOutOfMemory().check(facts(observed)))


def test_a_fork_that_was_refused_is_found():
    said = failure("[Errno 12] Cannot allocate memory", kind="OSError", phase="start")
    observed = trial(
        loader(num_workers=8),
        outcome="error",
        failures=(said,),
        iterators=(passed(batches=0, end="raised"),),
        vitals=vitals(main_rss=9 * GB),
    )

    (finding,) = found(observed)

    assert finding.message == (
        "`train_loader` cannot start 8 workers: the system refused another copy of a process of 9 GB "
        "(OSError: [Errno 12] Cannot allocate memory)"
    )
    assert finding.experiments[0].change.settings == {"num_workers": 1}


def test_memory_that_runs_out_later_is_another_matter():
    said = failure("[Errno 12] Cannot allocate memory", kind="OSError", phase="sample", worker=0)

    assert not found(trial(outcome="error", failures=(said,)))
