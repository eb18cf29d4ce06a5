"""PS818 ctrl-c."""

from __future__ import annotations

import dataclasses

from penstock._clinic.facts import Facts
from penstock._clinic.rules.endings.ps818_ctrl_c import CtrlC
from penstock._lab.record import Failure, LoaderSeen, Trial

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 9\nKeyboardInterrupt\n'
NOISY = Trial(
    outcome="error",
    status=130,
    loaders=(LoaderSeen(key="train.py:9#0", settings={"num_workers": 2}),),
    stderr=f"Process Process-1:\n{TRACEBACK}Process Process-2:\n{TRACEBACK}{TRACEBACK}",
)


def found(trial):
    return list(CtrlC().check(Facts(observed=trial)))


def test_an_interrupt_that_every_worker_answers_is_found():
    (finding,) = found(NOISY)

    assert finding.message == "interrupted, the program printed 3 tracebacks"
    assert finding.loader == "train.py:9#0"
    assert finding.experiments[0].change.use_penstock


def test_an_interrupt_that_leaves_workers_is_found():
    (finding,) = found(dataclasses.replace(NOISY, stderr=TRACEBACK, left_processes=2))

    assert finding.message == "interrupted, the program printed 1 tracebacks and left 2 processes"


def test_one_traceback_is_as_it_should_be():
    assert not found(dataclasses.replace(NOISY, stderr=TRACEBACK))


def test_a_worker_that_interrupts_itself_is_another_illness():
    own = Failure("KeyboardInterrupt", phase="sample", worker=1)

    assert not found(dataclasses.replace(NOISY, status=1, failures=(own,)))


def test_the_consumers_own_interrupt_counts_whatever_the_status():
    own = Failure("KeyboardInterrupt", phase="program", is_fatal=True)

    assert found(dataclasses.replace(NOISY, status=1, failures=(own,)))


def test_a_program_that_we_ended_was_not_interrupted():
    assert not found(dataclasses.replace(NOISY, ended_by="time"))
