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

    assert finding.message == "an interrupt ended the program: it printed 3 tracebacks"
    assert finding.loader == "train.py:9#0"
    assert not finding.experiments


def test_an_interrupt_that_leaves_workers_is_found():
    (finding,) = found(dataclasses.replace(NOISY, stderr=TRACEBACK, left_workers=2))

    assert finding.message == "an interrupt ended the program: it printed 1 traceback, left 2 workers"


def test_what_it_did_to_workers_is_said():
    hit = tuple(Failure("KeyboardInterrupt", phase="sample", worker=number) for number in (0, 1))
    own = Failure("KeyboardInterrupt", phase="program", is_fatal=True, at_s=4.5)

    (finding,) = found(dataclasses.replace(NOISY, status=-2, stderr="", failures=(*hit, own)))

    assert finding.message == "an interrupt ended the program: it reached 2 workers"
    assert finding.stopped_at_s == 4.5


def test_an_interrupt_that_did_nothing_else_is_still_why_the_program_ended():
    (finding,) = found(dataclasses.replace(NOISY, stderr=""))

    assert finding.message == "an interrupt ended the program"


def test_an_interrupt_that_the_program_takes_as_its_end_is_well():
    own = Failure("KeyboardInterrupt", phase="next")

    assert not found(dataclasses.replace(NOISY, outcome="ok", status=0, failures=(own,)))


def test_a_worker_that_interrupts_itself_is_another_illness():
    own = Failure("KeyboardInterrupt", phase="sample", worker=1)

    assert not found(dataclasses.replace(NOISY, status=1, failures=(own,)))


def test_the_consumers_own_interrupt_counts_whatever_the_status():
    own = Failure("KeyboardInterrupt", phase="program", is_fatal=True)

    assert found(dataclasses.replace(NOISY, status=1, failures=(own,)))


def test_a_program_that_we_ended_was_not_interrupted():
    assert not found(dataclasses.replace(NOISY, ended_by="time"))
