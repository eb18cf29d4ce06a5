"""PS102 missing-main-guard."""

from __future__ import annotations

from penstock._clinic.rules.start.ps102_missing_main_guard import MissingMainGuard
from penstock._lab.record import Site
from tests.rules.seen import facts, failure, trial
from tests.rules.stuck import FILE, spawned

TEXT = """
        An attempt has been made to start a new process before the
        current process has finished its bootstrapping phase.
"""
GONE = "DataLoader worker (pid(s) 11) exited unexpectedly"
PRINTED = f"""Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 122, in spawn_main
  File "{FILE}", line 14, in <module>
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 140, in _check_not_importing_main
RuntimeError:
        An attempt has been made to start a new process before the
        current process has finished its bootstrapping phase.
"""


def found(**fields):
    return list(MissingMainGuard().check(facts(trial(spawned(), outcome="error", **fields))))


def test_the_loop_that_workers_run_into_is_named():
    tried = failure(TEXT, phase="start", worker=0, site=Site(FILE, 14))

    (finding,) = found(failures=(tried, failure(GONE, phase="program", is_fatal=True)))

    assert finding.message == (
        "workers of `train_loader` start by spawn and run the whole script again, because the loop at"
        ' train.py:14 is not under `if __name__ == "__main__":`'
    )
    assert finding.prescription.fix.name == "main-guard"
    assert finding.where == Site(FILE, 14)


def test_what_a_worker_printed_is_enough():
    (finding,) = found(failures=(failure(GONE, is_fatal=True),), stderr=PRINTED)

    assert finding.where == Site(FILE, 14, "<module>")


def test_a_worker_that_is_gone_for_another_reason_is_not_blamed_on_the_guard():
    assert found(failures=(failure(GONE, is_fatal=True),)) == []
