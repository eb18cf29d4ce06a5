"""A loader on which a program waits."""

from __future__ import annotations

import dataclasses

import pytest

from penstock._clinic.facts import Facts
from penstock._clinic.slowness import percent, seconds, slow_loaders
from penstock._lab.record import LoaderSeen
from tests.rules.pacing import KEY, Program

SLOW = Program(wait_s=0.05, step_s=0.01, made_s=0.1)


def only(program):
    (slow,) = slow_loaders(program.facts)
    return slow


def test_without_a_run_nothing_is_slow():
    assert not list(slow_loaders(Facts()))


def test_a_program_that_hardly_waits_has_no_slow_loader():
    assert not list(slow_loaders(SLOW.but(wait_s=0.0001, start_s=0.0).facts))


def test_a_loader_that_was_only_made_is_not_slow():
    assert not list(
        slow_loaders(dataclasses.replace(SLOW.facts, observed=dataclasses.replace(SLOW.trial, iterators=())))
    )


def test_a_loader_with_a_small_part_in_all_loops_is_not_what_slows_the_program():
    trial = SLOW.trial
    (seen,) = trial.iterators
    other = dataclasses.replace(seen, loader="other", steps=tuple(12 * step for step in seen.steps))
    both = dataclasses.replace(
        trial, loaders=(*trial.loaders, LoaderSeen(key="other", length=100)), iterators=(seen, other)
    )
    both = dataclasses.replace(both, seconds=200.0)
    long = dataclasses.replace(both, iterators=(seen, dataclasses.replace(other, steps=(1.0,) * 100)))

    worth = {slow.loader.key: slow.is_worth_a_trial for slow in slow_loaders(Facts(observed=both))}
    hidden = {slow.loader.key: slow.is_worth_a_trial for slow in slow_loaders(Facts(observed=long))}

    assert worth == {KEY: True, "other": False}
    assert hidden == {KEY: False}


def test_a_wait_that_is_too_short_or_too_small_a_share_is_not_worth_a_trial():
    assert only(SLOW).is_worth_a_trial
    assert not only(SLOW.but(batches=10, length=10)).is_worth_a_trial
    assert not only(SLOW.but(step_s=0.2)).is_worth_a_trial


def test_short_epochs_add_up():
    short = SLOW.but(batches=10, length=10)

    assert not only(short.but(passes=3)).is_worth_a_trial
    assert only(short.but(passes=8)).is_worth_a_trial


def test_half_as_much_is_enough_where_an_epoch_takes_a_third_without_workers():
    short = SLOW.but(batches=14, length=14)  # 0.75 s in an epoch, 16 samples in a batch

    assert not only(short).is_worth_a_trial
    assert not only(short.but(rates={0: 600.0})).is_worth_a_trial
    assert only(short.but(rates={0: 1000.0})).is_worth_a_trial
    assert not only(short.but(batches=8, length=8, rates={0: 1000.0})).is_worth_a_trial


def test_hand_over_is_what_a_batch_waits_beyond_its_making():
    assert only(SLOW).hand_over_s == pytest.approx(0.01)
    assert only(SLOW.but(made_s=0.02)).hand_over_s == pytest.approx(0.05)
    assert only(SLOW.but(workers=0)).hand_over_s == 0


def test_a_pass_of_one_batch_says_nothing_about_hand_over():
    assert only(SLOW.but(batches=1)).hand_over_share == 0


def test_workers_that_share_a_cpu_compute_with_a_part_of_it():
    crowded = SLOW.but(workers=8, made_s=0.4, cpu_share=0.25)

    assert only(crowded).computes
    assert not only(crowded).waits
    assert only(crowded.but(cpu_share=0.05)).waits


def test_looks_tell_whether_making_or_hand_over_takes_the_time():
    busy, idle = ("", "", "", "futex_do_wait"), ("", "poll_schedule_timeout", "poll_schedule_timeout", "")

    assert only(SLOW.but(made_s=0.02, worker_waits=busy)).makes_batches_all_the_time
    assert not only(SLOW.but(made_s=0.02, worker_waits=idle)).makes_batches_all_the_time


def test_hand_over_is_a_share_of_the_waiting_of_workers():
    assert only(SLOW.but(made_s=0.02)).hands_over(0.5)
    assert not only(SLOW).hands_over(0.5)
    assert not only(SLOW.but(workers=0)).hands_over(0.0)


def test_on_a_crowded_machine_computing_is_told_from_waiting():
    slow = only(SLOW)
    crowded = dataclasses.replace(slow, work=dataclasses.replace(slow.work, cpu_s=1.0, queued_s=8.5))

    assert crowded.computes
    assert crowded.worth_s == 2.0


def test_gains_come_from_the_ladder():
    slow = only(SLOW.but(rates={0: 100.0, 2: 200.0}))

    assert slow.gain(0) == pytest.approx(0.5)
    assert slow.saved_s(0) == pytest.approx(1600 / 200 - 1600 / 100)
    assert slow.gain(4) is None
    assert slow.saved_s(4) == 0


def test_a_fraction_of_a_cpu_is_a_cpu_for_workers():
    assert only(SLOW.but(cpus=0.5)).most_workers == 1
    assert only(SLOW.but(cpus=1.5)).most_workers == 2
    assert only(SLOW.but(cpus=2.0)).most_workers == 2


def test_evidence_is_said_with_numbers():
    slow = only(SLOW.but(rates={0: 100.0, 2: 2000.0}))

    assert slow.wait.value == "5 s of 6 s, 5 s in an epoch"
    assert slow.ladder[0].value == "0 workers 100, 2 workers 2,000"
    assert only(SLOW).ladder == ()


def test_a_prescription_names_the_old_and_the_new_value():
    prescription = only(SLOW).set_option("prefetch_factor", 4, expect="fewer waits")

    assert prescription.change == "prefetch_factor=2 → prefetch_factor=4"
    assert prescription.fix.name == "set-option"
    assert prescription.fix.site.line == 31


@pytest.mark.parametrize(
    ("amount", "text"), [(0.0004, "0.4 ms"), (0.02, "20 ms"), (0.25, "0.2 s"), (3.0, "3 s"), (12.4, "12 s")]
)
def test_times_are_short_to_read(amount, text):
    assert seconds(amount) == text


def test_shares_are_percent():
    assert percent(0.834) == "83 %"


def test_loops_one_within_another_take_no_longer_than_there_was_time():
    trial = SLOW.trial
    (seen,) = trial.iterators
    around = dataclasses.replace(
        seen, loader="other", steps=(10 * trial.seconds / seen.batches,) * seen.batches
    )
    both = dataclasses.replace(
        trial, loaders=(*trial.loaders, LoaderSeen(key="other", length=100)), iterators=(seen, around)
    )

    inner = next(slow for slow in slow_loaders(Facts(observed=both)) if slow.loader.key == KEY)

    assert inner.program_s == trial.seconds - seen.began_s
    assert inner.is_worth_a_trial
