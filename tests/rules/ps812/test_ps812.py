"""PS812 worker-exited."""

from __future__ import annotations

import pytest

from penstock._clinic.rules.failures.ps812_worker_exited import WorkerExited
from penstock._lab.record import Death, Site
from tests.rules.seen import KEY, facts, failure, host, loader, trial, zero
from tests.rules.stuck import FILE, source, spawned

GONE = failure("DataLoader worker (pid(s) 12) exited unexpectedly", is_fatal=True)
TEXT = "class D:\n    def __getitem__(self, i):\n        os._exit(3)\n"


def died(status, *, seen=None, **fields):
    death = Death(12, worker=1, loader=KEY, status=status, index=21, at_s=4.0)
    return trial(seen, **{"outcome": "crash", "deaths": (death,), "failures": (GONE,), **fields})


def found(observed, *rungs, text=""):
    return list(WorkerExited().check(facts(observed, *rungs, source=source(text))))


@pytest.mark.parametrize(
    ("status", "how"),
    [(3, "with status 3"), (0, "with status 0"), (None, "without a word"), (-9, "by SIGKILL")],
)
def test_how_it_ended_and_at_which_sample(status, how):
    (finding,) = found(died(status), text=TEXT)

    assert finding.message == f"worker 1 of `train_loader` ended {how} at sample 21 at train.py:3"
    assert finding.prescription.fix.name == "raise-runtime-error"


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt"])
def test_an_exception_that_ends_processes_is_named(kind):
    left = failure("bye", kind=kind, phase="sample", worker=1, index=21, site=Site(FILE, 9))
    broken = failure("[Errno 104] Connection reset by peer", kind="ConnectionResetError", is_fatal=True)

    (finding,) = found(trial(outcome="error", failures=(left, broken)))

    assert finding.message == f"worker 1 of `train_loader` ended by {kind} at sample 21 at train.py:9"


def test_without_workers_it_is_the_program_that_ends():
    left = failure("bye", kind="SystemExit", phase="sample", index=21, site=Site(FILE, 9), is_fatal=True)

    (finding,) = found(trial(loader(num_workers=0), outcome="error", failures=(left,)), zero(outcome="error"))

    assert finding.message == "the program of `train_loader` ended by SystemExit at sample 21 at train.py:9"


@pytest.mark.parametrize(
    "observed",
    [
        trial(),
        died(-15),
        died(-11),
        died(-9, host=host(oom_kills=1)),
        died(-9, outcome="oom"),
        died(1, failures=(failure("'the'", kind="KeyError", phase="program", is_fatal=True),)),
        died(1, seen=spawned(), failures=(failure("cannot pickle 'x'", phase="pickle"), GONE)),
    ],
)
def test_other_ends_have_other_rules(observed):
    assert found(observed) == []
