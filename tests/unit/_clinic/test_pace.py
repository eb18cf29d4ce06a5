"""How fast a loader was, and where its time went."""

from __future__ import annotations

import dataclasses

import pytest

from penstock._clinic import pace
from penstock._clinic.facts import Facts
from penstock._lab.plan import Change, Plan
from penstock._lab.record import HostSeen, IteratorSeen, LoaderSeen, Trial, Vitals
from tests.rules.pacing import KEY, Program

FOUR = Program(batches=4, length=4, start_s=0.2, first_wait_s=0.5, wait_s=0.1, step_s=0.3)


def test_a_pass_waits_in_iter_and_in_next():
    seen = pace.pace(FOUR.trial, KEY)

    assert seen.wait_s == pytest.approx(0.2 + 0.5 + 3 * 0.1)
    assert seen.step_s == pytest.approx(1.2)
    assert seen.wait_share == pytest.approx(1.0 / 2.2)
    assert seen.batch_wait_s == pytest.approx(0.1)


def test_the_start_is_what_the_first_batch_took_longer_than_the_others():
    assert pace.pace(FOUR.trial, KEY).start_s == pytest.approx(0.2 + 0.5 - 0.1)


def test_free_batches_leave_the_steps():
    assert pace.pace(FOUR.trial, KEY).replay_s == pytest.approx(1.2)


def test_a_loader_that_was_never_used_has_no_pace():
    seen = pace.pace(dataclasses.replace(FOUR.trial, iterators=()), KEY)

    assert (seen.batches, seen.seconds, seen.wait_share, seen.epoch_s) == (0, 0, 0, 0)


def test_an_epoch_that_was_cut_short_is_reckoned_to_its_end():
    seen = pace.pace(FOUR.but(length=100, end="open").trial, KEY)

    assert seen.epoch_wait_s == pytest.approx(0.6 + 100 * 0.1)


def test_a_pass_that_the_program_breaks_off_is_its_epoch():
    assert pace.pace(FOUR.but(length=100, end="dropped").trial, KEY).epoch_batches == 4


def test_a_pass_that_we_break_off_is_not():
    trial = dataclasses.replace(FOUR.but(length=100, end="dropped").trial, plan=Plan(drive="loader"))

    assert pace.pace(trial, KEY).epoch_batches == 100


def test_samples_are_counted_by_the_size_of_batches_where_nobody_did():
    trial = FOUR.trial
    bare = tuple(dataclasses.replace(seen, samples=0) for seen in trial.iterators)

    assert pace.pace(dataclasses.replace(trial, iterators=bare), KEY).samples == 4 * 16


def test_without_a_batch_size_a_batch_is_a_sample():
    trial = Trial(
        loaders=(LoaderSeen(key=KEY),), iterators=(IteratorSeen(loader=KEY, batches=3, waits=(1.0,) * 3),)
    )

    assert pace.pace(trial, KEY).samples == 3


def test_work_tells_computing_from_waiting():
    work = pace.work(FOUR.but(made_s=0.2, collate_s=0.05, cpu_share=0.5, read_nbytes=100).trial, KEY)

    assert work.batch_s == pytest.approx(0.2)
    assert work.cpu_share == pytest.approx(0.5)
    assert work.collate_share == pytest.approx(0.25)
    assert work.sample_s == pytest.approx(0.2 / 16)
    assert work.sample_read_nbytes == 100


def test_no_work_has_no_shares():
    work = pace.Work()

    assert (work.batch_s, work.cpu_share, work.collate_share, work.sample_s, work.sample_read_nbytes) == (
        0,
    ) * 5


def test_durations_come_in_the_order_in_which_batches_are_due():
    program = FOUR.but(workers=2, batches=4, slow_batches={2: 9.0})

    assert pace.work(program.trial, KEY).durations == pytest.approx((0.1, 0.1, 9.0, 0.1))


def test_a_rate_counts_whole_epochs_with_their_start():
    trial = FOUR.trial

    assert pace.rate(trial, KEY) == pytest.approx(64 / 2.2)


def test_where_only_first_batches_came_there_is_no_rate():
    first = dataclasses.replace(FOUR.trial.iterators[0], batches=1, waits=(5.0,), steps=())

    assert pace.rate(dataclasses.replace(FOUR.trial, iterators=(first,)), KEY) is None


def test_a_trial_that_failed_has_no_rate():
    assert pace.rate(dataclasses.replace(FOUR.trial, outcome="hang"), KEY) is None


def test_the_ladder_gives_a_rate_for_each_number_of_workers():
    facts = FOUR.but(rates={0: 100.0, 2: 150.0}).facts

    assert pace.rates(facts, KEY) == pytest.approx({0: 100.0, 2: 150.0})


def test_timings_outvote_a_rung():
    one, two, three = (FOUR.but(rates={0: speed}).facts.ladder[0] for speed in (100.0, 180.0, 200.0))

    assert pace.rates(Facts(ladder=(one,), timings=(two, three)), KEY) == pytest.approx({0: 180.0})


def test_trials_with_other_changes_are_not_the_ladder():
    (rung,) = FOUR.but(rates={0: 100.0}).facts.ladder
    changed = dataclasses.replace(rung, plan=rung.plan.plus(Change(settings={"in_order": False})))
    ours = dataclasses.replace(rung, plan=rung.plan.plus(Change(use_penstock=True)))
    mended = dataclasses.replace(rung, plan=rung.plan.plus(Change(mends=("no-locks",))))

    assert pace.rates(Facts(ladder=(changed, ours, mended)), KEY) == {}


def test_idle_cpus_are_what_the_tree_did_not_use():
    assert pace.idle_cpus(FOUR.but(used_cpus=0.5).trial, KEY) == pytest.approx(1.5)


def test_without_looks_nobody_knows_of_idle_cpus():
    assert pace.idle_cpus(FOUR.trial, KEY) is None
    assert pace.idle_cpus(Trial(host=HostSeen(cpus=2), vitals=(Vitals(at_s=1.0, cpu_s=1.0),)), KEY) is None


def test_where_workers_wait_is_counted_over_all_looks():
    trial = FOUR.but(worker_waits=("futex_do_wait", "", "", "")).trial

    assert pace.worker_waits(trial) == {"futex_do_wait": 0.25, "": 0.75}


def test_workers_that_poll_their_queue_have_nothing_to_do():
    trial = FOUR.but(worker_waits=("poll_schedule_timeout.constprop.0", "", "", "")).trial

    assert pace.busy_share(trial) == pytest.approx(0.75)


def test_a_few_looks_do_not_tell_how_busy_workers_are():
    assert pace.busy_share(FOUR.but(worker_waits=("", "")).trial) is None


def test_whoever_waits_for_a_cpu_wants_to_compute():
    work = pace.Work(samples_s=10.0, cpu_s=2.0, queued_s=7.0)

    assert work.cpu_share == pytest.approx(0.2)
    assert work.wanted_share == pytest.approx(0.9)
    assert pace.Work().wanted_share == 0


def test_others_on_the_machine_make_it_crowded():
    assert pace.Work(cpu_s=2.0, queued_s=4.0).crowding(2, 2.0) == pytest.approx(1.5)
    assert pace.Work(cpu_s=2.0, queued_s=40.0).crowding(2, 2.0) == 2.0


def test_workers_that_take_cpus_from_one_another_are_no_crowd_of_others():
    assert pace.Work(cpu_s=2.0, queued_s=6.0).crowding(8, 2.0) == 1.0


def test_a_quiet_machine_is_not_crowded():
    assert pace.Work(cpu_s=2.0, queued_s=0.5).crowding(2, 2.0) == 1.0
    assert pace.Work(cpu_s=0.0, queued_s=0.0).crowding(0, 0.0) == 1.0


def test_only_batches_that_are_all_told_are_averaged():
    seen = IteratorSeen(loader=KEY, batches=4000, waits=(0.01,) * 201 + (0.5,) * 50, steps=(0.01,) * 251)
    trial = Trial(loaders=(LoaderSeen(key=KEY),), iterators=(seen,))

    assert pace.pace(trial, KEY).batch_wait_s == pytest.approx(0.01)
    assert pace.pace(trial, KEY).wait_s == pytest.approx(40.0)


def test_in_order_one_slow_batch_holds_up_the_others():
    # Four workers; the slow batches all fall to the first.
    durations = [1.0, 0.1, 0.1, 0.1] * 3

    assert pace.in_order_s(durations, 4) == pytest.approx(3.0 + 0.0, abs=0.11)
    assert pace.any_order_s(durations, 4) == pytest.approx(1.3, abs=0.11)


def test_equal_batches_take_as_long_in_any_order():
    durations = [0.5] * 12

    assert pace.in_order_s(durations, 4) == pytest.approx(pace.any_order_s(durations, 4)) == 1.5


def test_the_training_step_bounds_both_orders():
    durations = [0.1] * 10

    assert pace.in_order_s(durations, 2, step_s=1.0) == pytest.approx(10.1)
    assert pace.any_order_s(durations, 2, step_s=1.0) == pytest.approx(10.1)


def test_no_batches_take_no_time():
    assert pace.in_order_s([], 2) == pace.any_order_s([], 2) == 0.0


def test_long_waits_in_a_rhythm_have_a_period():
    assert pace.period([0.9, 0.01, 0.01, 0.01] * 5) == 4


@pytest.mark.parametrize("waits", [[], [0.1] * 20, [0.01] * 9 + [0.9] + [0.01] * 9, [0.9] + [0.01] * 9])
def test_without_a_rhythm_there_is_no_period(waits):
    assert pace.period(waits) is None


def test_irregular_long_waits_have_no_period():
    waits = [0.01] * 60
    for place in (3, 8, 20, 27, 45, 59):
        waits[place] = 0.9

    assert pace.period(waits) is None


def test_too_few_looks_say_nothing_of_locks():
    assert pace.locked_share(Trial(vitals=(Vitals(1.0, worker_waits=("futex_do_wait",)),))) is None


def test_workers_that_wait_for_an_answer_are_told_from_those_that_compute():
    looks = Trial(vitals=(Vitals(1.0, worker_waits=("poll_schedule_timeout", "", "wait_woken", "futex")),))
    assert pace.network_share(looks) == 0.5
