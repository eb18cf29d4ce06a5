"""PS814 nested-workers."""

from __future__ import annotations

from penstock._clinic.rules.failures.ps814_nested_workers import NestedWorkers
from penstock._lab.record import Site
from tests.rules.seen import facts, failure, trial
from tests.rules.stuck import FILE

TEXT = "daemonic processes are not allowed to have children"


def found(*failures, outcome="error"):
    return list(NestedWorkers().check(facts(trial(outcome=outcome, failures=failures))))


def refused(**fields):
    return failure(
        TEXT,
        kind="AssertionError",
        phase="sample",
        worker=0,
        index=3,
        site=Site(FILE, 9),
        is_fatal=True,
        **fields,
    )


def test_an_inner_loader_is_named():
    (finding,) = found(refused())

    assert finding.message == (
        "a worker of `train_loader` starts a loader with workers of its own at train.py:9, for sample 3,"
        " and may not"
    )
    assert finding.prescription.fix.arguments == {"num_workers": 0}
    assert finding.experiments[0].change.mends == ("inner-workers-zero",)


def test_an_inner_pool_is_named():
    (finding,) = found(refused(traceback='File "/usr/lib/python3.11/multiprocessing/pool.py", line 215'))

    assert "starts a process pool of its own" in finding.message
    assert finding.prescription.fix is None


def test_other_failures_are_left_alone():
    assert found(failure("'label'", kind="KeyError", phase="sample", is_fatal=True)) == []
    assert found(outcome="ok") == []
