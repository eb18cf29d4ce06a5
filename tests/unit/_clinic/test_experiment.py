"""What trials without and with a change have shown."""

from __future__ import annotations

import dataclasses

import pytest

from penstock._clinic.experiment import (
    faster,
    gone,
    ill,
    same,
    silent,
    smaller,
    speed,
    speeds,
    stays,
    wrong_samples,
)
from penstock._clinic.finding import Experiment
from penstock._lab.plan import Change, Plan
from penstock._lab.record import (
    Death,
    Failure,
    FetchSeen,
    IteratorSeen,
    LoaderSeen,
    SampleSeen,
    Trial,
    Vitals,
)

KEY = "train.py:9#0"
SPAWN = Experiment("under spawn", Change(settings={"multiprocessing_context": "spawn"}))
FASTER = Experiment("with 2 workers", Change(settings={"num_workers": 2}), "faster")


def passed(batches, loader=KEY):
    return IteratorSeen(loader, batches=batches, waits=(0.1,) * batches, steps=(0.0,) * batches)


def well(batches=10, **fields):
    return Trial(iterators=(passed(batches),), **fields)


def raised(name, batches=3, **fields):
    failure = Failure(name, "text", loader=KEY, phase="sample", is_fatal=True, **fields)
    return Trial(outcome="error", status=1, iterators=(passed(batches),), failures=(failure,))


HUNG = Trial(outcome="hang", ended_by="stall", iterators=(passed(3),))


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (HUNG, well(), "verified"),
        (HUNG, HUNG, "refuted"),
        (raised("ValueError"), raised("ValueError"), "refuted"),
        (raised("ValueError"), raised("KeyError", batches=5), "verified"),
        (raised("ValueError"), raised("KeyError", batches=0), "not-tested"),
        (HUNG, raised("PicklingError", batches=0), "not-tested"),
        (well(), well(), "not-tested"),
    ],
)
def test_an_ill_is_gone_when_the_program_gets_past_it(before, after, status):
    assert gone("t", before, after, KEY).status == status


@pytest.mark.parametrize(
    ("before", "after", "is_so"),
    [(HUNG, HUNG, True), (HUNG, well(), False), (well(), HUNG, False), (HUNG, raised("KeyError"), False)],
)
def test_an_ill_stays_when_both_went_wrong_in_one_way(before, after, is_so):
    assert stays(before, after, KEY) is is_so


@pytest.mark.parametrize(("dies_at", "status"), [(301, "verified"), (258, "refuted"), (None, "refuted")])
def test_a_sample_that_was_left_out_is_guilty_where_another_dies_of_the_same(dies_at, status):
    before = dataclasses.replace(raised("RuntimeError"), deaths=(Death(1, 0, KEY, -11, 258),))
    after = dataclasses.replace(
        raised("RuntimeError"),
        plan=Plan(change=Change(mends=("skip-index:258",))),
        deaths=(Death(2, 0, KEY, -11, dies_at),),
    )

    assert gone("t", before, after, KEY).status == status


def test_one_runtime_error_may_hide_another():
    def says(text, batches):
        trial = raised("RuntimeError", batches)
        return dataclasses.replace(trial, failures=(dataclasses.replace(trial.failures[0], text=text),))

    full = says("unable to allocate shared memory(shm) for file </torch_1>", 2)

    assert (
        gone("t", full, says("Trying to resize storage that is not resizable", 9), KEY).status == "verified"
    )
    assert gone("t", full, says("unable to mmap 12 bytes from file </torch_2>", 9), KEY).status == "refuted"


def test_what_did_not_come_to_a_second_epoch_is_not_cured():
    two = Trial(iterators=(passed(5), passed(1)))

    assert gone("t", two, well(), KEY, lambda trial: trial is two).status == "not-tested"
    assert gone("t", two, dataclasses.replace(two), KEY, lambda trial: trial is two).status == "verified"


def test_a_silent_ill_is_judged_by_the_rule_itself():
    sick, cured = well(batches=9), well(batches=10)
    fires = lambda trial: trial is sick  # noqa: E731
    assert gone("t", sick, cured, KEY, fires).status == "verified"
    assert gone("t", sick, sick, KEY, fires).status == "refuted"
    assert gone("t", cured, cured, KEY, fires).status == "not-tested"
    assert gone("t", sick, HUNG, KEY, fires).status == "not-tested"


def test_the_same_error_of_another_loader_later_on_does_not_refute_the_cure_of_this_one():
    def failed(key, batches):
        failure = Failure("TypeError", "cannot pickle", loader=key, is_fatal=True)
        return Trial(outcome="error", iterators=(passed(batches),), failures=(failure,))

    assert gone("t", failed(KEY, 0), failed("val.py:9#0", 5), KEY).status == "verified"
    assert gone("t", failed(KEY, 0), failed(KEY, 5), KEY).status == "refuted"


def test_an_error_in_place_of_silence_is_proof_when_the_change_is_meant_to_bring_it():
    sick = well(batches=9)
    raised = Trial(outcome="error", failures=(Failure("RuntimeError", loader=KEY, is_fatal=True),))
    fires = lambda trial: trial is sick  # noqa: E731
    assert gone("t", sick, raised, KEY, fires, brings="RuntimeError").status == "verified"
    assert gone("t", sick, raised, KEY, fires, brings="TimeoutError").status == "not-tested"


def test_an_exception_that_the_program_caught_counts_for_its_own_loader_only():
    caught = Trial(iterators=(passed(3),), failures=(Failure("ValueError", loader=KEY, index=7),))
    assert ill(caught, KEY).index == 7
    assert ill(caught, "other") is None
    assert ill(caught, None) is None


def test_a_killed_worker_is_told_by_its_status():
    assert str(ill(Trial(outcome="crash", deaths=(Death(7, status=-11),)), KEY)) == "status -11"


def samples(*pairs):
    return tuple(SampleSeen(KEY, index=index, digest=digest) for index, digest in pairs)


def test_samples_are_held_against_the_reference_by_index():
    reference = Trial(samples=samples((0, "a"), (1, "b"), (2, "c"), (2, "d")))
    wrong = Trial(samples=samples((0, "x"), (1, "b"), (2, "y"), (5, "z")))
    got = wrong_samples(wrong, reference, KEY)
    assert (got.compared, got.wrong) == (2, 1)  # 2 is random in the reference itself, 5 is unknown


def test_same_is_verified_when_wrong_samples_become_right():
    reference = Trial(samples=samples((0, "a"), (1, "b")))
    wrong, right = Trial(samples=samples((0, "x"), (1, "b"))), Trial(samples=samples((0, "a"), (1, "b")))
    assert same("t", wrong, right, reference, KEY).status == "verified"
    assert same("t", wrong, wrong, reference, KEY).status == "refuted"
    assert same("t", right, right, reference, KEY).status == "not-tested"


def growing(per_sample):
    fetches = [
        FetchSeen(KEY, worker=0, pid=5, indices=(0,) * 8, began_s=turn, uss=1000 + per_sample * 8 * turn)
        for turn in range(30)
    ]
    return Trial(fetches=tuple(fetches), loaders=(LoaderSeen(KEY),))


def test_growth_is_smaller_when_its_slope_is():
    grow = Experiment("packed", Change(mends=("pack",)), "smaller", ratio=2.0)
    assert smaller(grow, growing(100), growing(3), KEY, "copy-on-write-growth").status == "verified"
    assert smaller(grow, growing(100), growing(90), KEY, "copy-on-write-growth").status == "refuted"
    assert smaller(grow, growing(0), growing(0), KEY, "copy-on-write-growth").status == "not-tested"


def test_a_change_that_breaks_the_program_proves_nothing_about_memory():
    grow = Experiment("packed", Change(mends=("pack",)), "smaller")
    assert smaller(grow, growing(100), HUNG, KEY, "copy-on-write-growth").status == "not-tested"


def test_a_peak_is_smaller_when_the_highest_vital_sign_is():
    less = Experiment("prefetch_factor=1", Change(settings={"prefetch_factor": 1}), "smaller")
    high, low = (Trial(vitals=(Vitals(1.0, shm_used=size),)) for size in (900, 300))
    assert smaller(less, high, low, KEY, "prefetch-memory").status == "verified"


def timed(wait):
    plan = Plan(drive="loader", loader=KEY)
    seen = IteratorSeen(KEY, batches=20, samples=160, waits=(wait,) * 20, steps=(0.0,) * 20)
    return Trial(plan=plan, iterators=(seen,))


def test_one_round_is_enough_when_it_is_decisive():
    assert faster(FASTER, [(timed(0.4), timed(0.1))], KEY).status == "verified"
    assert faster(FASTER, [(timed(0.2), timed(0.1))], KEY).status == "not-tested"


def test_samples_of_which_hardly_any_is_as_it_was_prove_nothing():
    reference = Trial(samples=samples(*((index, "a") for index in range(10))))
    wrong = Trial(samples=samples(*((index, "x") for index in range(10))))
    other = Trial(samples=samples(*((index, "y") for index in range(9)), (9, "a")))
    assert same("t", wrong, other, reference, KEY).status == "not-tested"


def test_speed_is_verified_when_every_round_agrees_and_the_median_is_enough():
    proof = faster(FASTER, [(timed(0.2), timed(0.1)), (timed(0.2), timed(0.12))], KEY)
    assert proof.status == "verified"
    assert proof.after["gain"] == pytest.approx(1.83, abs=0.01)


@pytest.mark.parametrize(
    "rounds",
    [
        [(timed(0.2), timed(0.15)), (timed(0.2), timed(0.15))],  # 1.33x
        [(timed(0.2), timed(0.02)), (timed(0.2), timed(0.21))],  # one round says the contrary
    ],
)
def test_a_small_or_doubtful_gain_is_refuted(rounds):
    assert faster(FASTER, rounds, KEY).status == "refuted"


def test_one_round_decides_nothing():
    assert faster(FASTER, [(timed(0.2), timed(0.1))], KEY).status == "not-tested"


def test_a_change_that_breaks_the_program_is_no_gain():
    assert faster(FASTER, [(timed(0.2), timed(0.1)), (timed(0.2), HUNG)], KEY).status == "not-tested"


def test_the_speed_of_a_program_counts_its_own_steps():
    seen = IteratorSeen(KEY, batches=10, samples=80, waits=(0.1,) * 10, steps=(0.3,) * 10)
    assert speed(Trial(iterators=(seen,)), KEY) == pytest.approx(20)


def test_where_each_step_has_an_iterator_the_time_between_them_counts():
    steps = tuple(IteratorSeen(KEY, n, began_s=n, batches=1, samples=8, waits=(0.1,)) for n in range(10))
    whole = IteratorSeen(KEY, batches=20, samples=160, waits=(0.1,) * 20, steps=(0.4,) * 20)

    was, now = speeds(Trial(seconds=10.0, iterators=steps), Trial(seconds=10.0, iterators=(whole,)), KEY)

    assert (was, now) == (pytest.approx(8), pytest.approx(16))


def test_a_rule_that_no_longer_fires_is_silent_however_both_ended():
    before = Trial(outcome="crash", iterators=(IteratorSeen(loader="a", batches=3),), left_workers=1)
    after = dataclasses.replace(before, left_workers=0)

    proof = silent("ours", before, after, lambda trial: trial.left_workers > 0)

    assert (proof.status, proof.experiment) == ("verified", "ours: it is gone")
    assert silent("ours", before, before, lambda trial: trial.left_workers > 0).status == "refuted"


def test_what_did_not_come_to_a_batch_is_not_silent_but_untested():
    before = Trial(iterators=(IteratorSeen(loader="a", batches=3),), left_workers=1)

    assert silent("ours", before, Trial(), lambda trial: trial.left_workers > 0).status == "not-tested"
