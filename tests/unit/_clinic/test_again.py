"""Loaders that one line makes again and again."""

from __future__ import annotations

import dataclasses

from penstock._clinic import pace
from penstock._clinic.again import MOST, by_line, firsts
from penstock._lab.record import DatasetSeen, IteratorSeen, LoaderSeen, Trial
from tests.rules.pacing import KEY, Program

FOUR = Program(batches=4, length=4, start_s=0.2, first_wait_s=0.5, wait_s=0.1, step_s=0.3)


def test_loaders_that_a_line_makes_again_and_again_count_as_one():
    again = FOUR.but(passes=3).made_again.observed
    assert len(again.loaders) == 3
    assert pace.pace(by_line(again), KEY) == pace.pace(FOUR.but(passes=3).trial, KEY)


def test_loaders_of_one_line_that_differ_stay_apart():
    again = FOUR.but(passes=2).made_again.observed
    other = dataclasses.replace(again.loaders[1], length=7)
    mixed = dataclasses.replace(again, loaders=(again.loaders[0], other))
    assert by_line(mixed) is mixed


def program(*passes, **changes):
    """A trial of one line's loaders, all alike: (number of the loader, began, ended) for each pass."""
    numbers = sorted({number for number, *_ in passes})
    loaders = [LoaderSeen(f"t.py:9#{number}", dataset=DatasetSeen("Images")) for number in numbers]
    seen = [IteratorSeen(f"t.py:9#{number}", began_s=began, ended_s=ended) for number, began, ended in passes]
    return dataclasses.replace(Trial(seconds=100.0, loaders=tuple(loaders), iterators=tuple(seen)), **changes)


def taken_for(trial):
    return [int(key.rpartition("#")[2]) for key in firsts(trial, trial.loaders).values()]


def test_a_loader_that_is_used_while_another_is_was_not_made_in_its_place():
    assert taken_for(program((0, 1.0, 9.0), (1, 2.0, 3.0), (1, 4.0, 5.0))) == [0, 1]


def test_training_and_validation_take_turns():
    assert taken_for(program((0, 1.0, 2.0), (1, 2.0, 3.0), (0, 3.0, 4.0), (1, 4.0, 5.0))) == [0, 1]


def test_each_fold_has_both_of_them():
    folds = [(0, 1, 2), (1, 2, 3), (0, 3, 4), (1, 4, 5), (2, 5, 6), (3, 6, 7), (2, 7, 8), (3, 8, 9)]
    assert taken_for(program(*folds)) == [0, 1, 0, 1]


def test_an_iterator_that_was_forgotten_is_in_use_no_longer():
    forgotten = IteratorSeen("t.py:9#0", began_s=1.0, waits=(0.5,), steps=(0.5,))
    trial = program((0, 1.0, 2.0), (1, 3.0, 4.0))
    assert taken_for(dataclasses.replace(trial, iterators=(forgotten, trial.iterators[1]))) == [0, 0]


def test_one_that_waits_for_a_batch_is_in_use():
    waits = IteratorSeen("t.py:9#0", began_s=1.0, waiting_since_s=1.5)
    trial = program((0, 1.0, 2.0), (1, 3.0, 4.0))
    assert taken_for(dataclasses.replace(trial, iterators=(waits, trial.iterators[1]))) == [0, 1]


def test_only_so_many_are_told_apart():
    together = [(number, 1.0, 50.0) for number in range(MOST + 2)]
    assert taken_for(program(*together)) == [*range(MOST), 0, 0]
