"""PS407 workers-restarted."""

from __future__ import annotations

import dataclasses

from penstock._clinic.facts import Facts
from penstock._clinic.rules.speed.ps407_workers_restarted import WorkersRestarted
from tests.rules.pacing import KEY, Program

# Epochs of ten quick batches, each after a pause.
SICK = Program(
    passes=3, batches=10, length=10, start_s=0.2, first_wait_s=1.3, wait_s=0.01, made_s=0.01, step_s=0.01
)


def found(program):
    return list(WorkersRestarted().check(program.facts))


def test_epochs_that_are_mostly_start_ask_for_workers_that_stay():
    (finding,) = found(SICK)

    assert finding.message == "each epoch starts 2 workers anew: 1.5 s of 1.7 s, 88 % of the epoch"
    assert finding.prescription.change == "persistent_workers=False → persistent_workers=True"
    assert finding.experiments[0].change.settings == {"persistent_workers": True}
    assert finding.experiments[0].epochs > 1


def test_short_pauses_count_when_there_were_many():
    assert found(SICK.but(passes=6, start_s=0.1, first_wait_s=0.3))


def test_loaders_of_one_line_that_are_used_in_turn_pay_together():
    """A loader for each of four parts of the data, gone through in every round: 0.5 s each in all."""
    program = SICK.but(passes=6, batches=2, length=2, start_s=0.05, first_wait_s=0.06)
    assert not found(program)
    trial = program.trial
    keys = [f"{KEY[:-1]}{number}" for number in range(4)]
    loaders = [dataclasses.replace(program.loader, key=key) for key in keys]
    # Each round goes through all of them, so that none was made in place of another.
    passes = [
        dataclasses.replace(seen, loader=key, began_s=seen.began_s + place * 0.01)
        for seen in trial.iterators
        for place, key in enumerate(keys)
    ]
    together = dataclasses.replace(trial, seconds=20.0, loaders=tuple(loaders), iterators=tuple(passes))

    (finding,) = WorkersRestarted().check(Facts(observed=together))

    assert (finding.severity, finding.loader) == ("warning", KEY)


def test_a_short_pause_or_two_are_left_alone():
    assert not found(SICK.but(start_s=0.1, first_wait_s=0.3))


def test_an_epoch_or_two_restart_nothing_that_anybody_minds():
    assert not found(SICK.but(passes=1))
    (told,) = found(SICK.but(passes=2))
    assert told.severity == "info"


def test_two_epochs_with_a_very_long_start_do():
    assert found(SICK.but(passes=2, first_wait_s=4.0))


def test_epochs_of_very_few_batches_count_too():
    assert found(SICK.but(passes=20, batches=2, length=2))


def test_workers_that_stay_are_left_alone():
    assert not found(SICK.but(settings={"persistent_workers": True}))


def test_a_long_epoch_hides_its_start():
    assert not found(SICK.but(batches=1000, length=1000))


def test_without_workers_nothing_starts():
    assert not found(SICK.but(workers=0))


def test_a_new_iterator_for_each_step_is_another_cause():
    assert not found(SICK.but(passes=20, batches=1, length=10, end="dropped"))


def test_the_start_of_a_small_loader_beside_a_long_one_is_left_alone():
    facts = SICK.facts
    (first, second, third) = facts.observed.iterators
    long = dataclasses.replace(first, loader="train.py:20#0", steps=(3.0,) * 10, number=0)
    loaders = (*facts.observed.loaders, dataclasses.replace(SICK.loader, key="train.py:20#0"))
    iterators = (long, first, second, third)
    both = dataclasses.replace(facts.observed, seconds=60.0, loaders=loaders, iterators=iterators)

    assert not list(WorkersRestarted().check(dataclasses.replace(facts, observed=both)))


def test_workers_that_stay_go_with_a_loader_that_is_made_anew():
    kept = SICK.but(settings={"persistent_workers": True})

    (finding,) = WorkersRestarted().check(kept.made_again)

    assert finding.message == "each new loader starts 2 workers anew: 1.5 s of 1.7 s, 88 % of a pass"
    assert finding.prescription.change.startswith("make the loader once, before the loop")
    assert finding.experiments[0].base.settings == {"persistent_workers": False}


def test_a_new_loader_for_each_epoch_cannot_keep_its_workers():
    (finding,) = WorkersRestarted().check(SICK.made_again)

    assert finding.prescription.change.startswith("make the loader once, before the loop")
    assert not finding.experiments[0].base
