"""PS819 orphan-workers."""

from __future__ import annotations

import dataclasses

from penstock._clinic.facts import Facts
from penstock._clinic.rules.endings.ps819_orphan_workers import OrphanWorkers
from penstock._lab.record import IteratorSeen, LoaderSeen, Trial

LEFT = Trial(
    outcome="crash",
    status=-9,
    loaders=(LoaderSeen(key="train.py:9#0", settings={"num_workers": 2}),),
    iterators=(IteratorSeen(loader="train.py:9#0", workers=(7, 8)),),
    left_workers=1,
)


def found(trial):
    return list(OrphanWorkers().check(Facts(observed=trial)))


def test_workers_that_outlive_the_program_are_found():
    (finding,) = found(LEFT)

    assert finding.message == "1 worker outlived the program, which ended by signal 9"
    assert finding.experiments[0].change.use_penstock


def test_how_the_program_ended_is_said():
    (finding,) = found(dataclasses.replace(LEFT, status=0))

    assert finding.message.endswith("which ended with status 0")


def test_an_end_that_nobody_saw_is_said_so():
    (finding,) = found(dataclasses.replace(LEFT, status=None))

    assert finding.message.endswith("in a way that nobody saw")


def test_where_nothing_is_left_all_is_well():
    assert not found(dataclasses.replace(LEFT, left_workers=0))


def test_whom_the_kernel_has_killed_for_want_of_memory_did_not_choose_its_end():
    assert not found(dataclasses.replace(LEFT, outcome="oom"))


def test_what_we_ended_ourselves_left_nothing_of_its_own():
    assert not found(dataclasses.replace(LEFT, ended_by="enough"))


def test_a_program_without_workers_left_something_else():
    assert not found(dataclasses.replace(LEFT, iterators=(IteratorSeen(loader="train.py:9#0"),)))


def test_workers_that_outlive_a_process_of_a_program_that_goes_on_are_found():
    (finding,) = found(dataclasses.replace(LEFT, ended_by="enough", left_workers=0, outlived_workers=2))

    assert finding.message.startswith("2 workers outlived the process that they worked for")
