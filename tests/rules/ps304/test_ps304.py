"""PS304 stop-iteration-truncates."""

from __future__ import annotations

from penstock._clinic.rules.data.ps304_stop_iteration_truncates import StopIterationTruncates
from penstock._lab.record import DatasetSeen, Site
from tests.rules.seen import facts, failure, loader, passed, trial, zero

STOP = failure(
    "", kind="StopIteration", phase="sample", index=61, worker=1, site=Site("/home/me/train.py", 14)
)


def found(observed, *rungs):
    return list(StopIterationTruncates().check(facts(observed, *rungs)))


def test_an_epoch_that_is_cut_short_is_found():
    (finding,) = found(trial(failures=(STOP,), iterators=(passed(batches=15),)))

    assert finding.severity == "error"
    assert finding.message == (
        "sample 61 raises StopIteration at train.py:14, which ends the epoch of `train_loader` after 15 of "
        "100 batches without a word"
    )
    assert finding.where == Site("/home/me/train.py", 14)
    assert finding.experiments[0].change.mends == ("stop-iteration-raises",)


def test_each_loader_is_told_once():
    assert len(found(trial(failures=(STOP, STOP)), zero(failures=(STOP,)))) == 1


def test_an_iterable_dataset_may_end_in_that_way():
    stream = loader(dataset=DatasetSeen(type="Lines", is_iterable=True))

    assert not found(trial(stream, failures=(STOP,)))


def test_other_exceptions_are_another_matter():
    assert not found(trial(failures=(failure("oh", kind="ValueError", phase="sample", index=61),)))
