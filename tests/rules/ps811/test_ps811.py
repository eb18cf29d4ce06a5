"""PS811 worker-segfault."""

from __future__ import annotations

import pytest

from penstock._clinic.rules.failures.ps811_worker_segfault import WorkerSegfault
from penstock._lab.record import Death, Site
from tests.rules.seen import GB, KEY, MB, facts, failure, host, loader, passed, trial, vitals, zero
from tests.rules.stuck import FILE

GONE = failure("DataLoader worker (pid 12) is killed by signal: Segmentation fault. ", is_fatal=True)
DUMP = f"""Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "{FILE}", line 22 in decode
  File "{FILE}", line 30 in __getitem__
"""


def died(status=-11, **fields):
    death = Death(12, worker=1, loader=KEY, status=status, index=37, at_s=4.0)
    return trial(**{"outcome": "crash", "deaths": (death,), "failures": (GONE,), **fields})


def found(observed, *rungs):
    return list(WorkerSegfault().check(facts(observed, *rungs)))


def test_signal_sample_and_line_are_told():
    (finding,) = found(died(stderr=DUMP), zero(outcome="crash", status=-11))

    assert finding.message == (
        "worker 1 of `train_loader` was ended by SIGSEGV in native code, at sample 37 at train.py:22, and"
        " so does"
        " num_workers=0"
    )
    assert finding.where == Site(FILE, 22, "decode")
    assert finding.experiments[0].change.mends == ("skip-index:37",)


def test_a_crash_in_forked_workers_only_is_tried_under_spawn():
    (finding,) = found(died(-6), zero())

    assert finding.experiments[0].change.settings == {"multiprocessing_context": "spawn"}


def test_a_program_that_crashes_without_workers_is_told_so():
    alone = trial(loader(num_workers=0), outcome="crash", status=-11, iterators=(passed(end="open"),))

    (finding,) = found(alone)

    assert finding.message.startswith("the program of `train_loader` was ended by SIGSEGV")


@pytest.mark.parametrize(
    "observed",
    [
        trial(),
        died(-9),
        died(1),
        died(-15),
        died(-7, host=host(shm_size=64 * MB), vitals=vitals(shm_used=63 * MB)),
        died(failures=(failure("mat1 and mat2", phase="program", is_fatal=True),)),
    ],
)
def test_other_ends_are_no_crashes(observed):
    assert found(observed) == []


def test_a_bus_error_with_room_in_shm_is_one():
    (finding,) = found(died(-7, host=host(shm_size=8 * GB), vitals=vitals(shm_used=MB)))

    assert "SIGBUS" in finding.message
