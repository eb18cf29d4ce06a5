"""Growth told from warm-up and noise."""

from __future__ import annotations

import random

import pytest

from penstock._clinic import growth
from penstock._lab.record import FetchSeen, Trial, Vitals


def noisy(value, *, count=60, noise=1.0, seed=0):
    chance = random.Random(seed)
    return [(float(step), value(step) + chance.uniform(-noise, noise)) for step in range(count)]


def test_a_straight_line_has_its_slope():
    found = growth.slope([(step, 3.0 * step + 7) for step in range(20)])

    assert found.per_step == pytest.approx(3.0)
    assert found.low == pytest.approx(3.0)
    assert found.gained == pytest.approx(57.0)
    assert found.after(10) == pytest.approx(94.0)
    assert found.is_rising


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_growth(seed):
    assert growth.growth(noisy(lambda _: 100.0, noise=20.0, seed=seed)).gained < 10


@pytest.mark.parametrize("seed", range(20))
def test_a_slope_under_noise_lies_within_its_interval(seed):
    found = growth.slope(noisy(lambda step: 2.0 * step, noise=8.0, seed=seed))

    assert found.low - 0.2 <= 2.0 <= found.high + 0.2
    assert found.is_rising


def test_a_few_odd_points_do_not_bend_it():
    points = [(float(step), 2.0 * step) for step in range(40)]
    points[7] = (7.0, 9_000.0)
    points[30] = (30.0, 0.0)

    assert growth.slope(points).per_step == pytest.approx(2.0)


def test_what_levels_off_after_warm_up_does_not_grow():
    assert not growth.growth([(float(step), min(step, 20) * 5.0) for step in range(60)]).is_rising


def test_what_rises_to_the_end_grows():
    assert growth.growth([(float(step), 100 + 5.0 * step) for step in range(60)]).is_rising


def test_too_few_points_tell_nothing():
    assert growth.slope([(0.0, 0.0), (1.0, 5.0), (2.0, 9.0)]) == growth.FLAT
    assert growth.slope([(1.0, float(value)) for value in range(9)]) == growth.FLAT


def test_many_points_are_thinned_and_the_last_is_kept():
    line = [(float(step), float(step)) for step in range(5_000)]

    thin = growth.thinned(line)

    assert len(thin) == growth.MOST
    assert (thin[0], thin[-1]) == (line[0], line[-1])


def test_vitals_grow_with_the_batches():
    vitals = [Vitals(at_s=step, batches=step, main_fds=10 + 2 * step) for step in range(30)]

    assert growth.of_vitals(vitals, "main_fds").per_step == pytest.approx(2.0)


def fetch(pid, made, uss, *, iterator=0, worker=0):
    return FetchSeen("a#0", iterator, worker, pid, began_s=iterator * 1_000 + made, made=made, uss=uss)


def test_a_worker_grows_with_the_samples_that_it_made():
    told = [fetch(7, 32 * step, 1_000 * step) for step in range(1, 20)]
    still = [fetch(8, 32 * step, 5_000, worker=1) for step in range(1, 20)]
    own = [fetch(9, 32 * step, 9_000 * step, worker=-1) for step in range(1, 20)]

    slope, gained = growth.of_workers(Trial(fetches=(*told, *own)), "a#0")

    assert slope.per_step == pytest.approx(1_000 / 32)
    assert gained == pytest.approx(14_000)
    assert growth.of_workers(Trial(fetches=tuple(still)), "a#0") == (growth.FLAT, 0.0)


def test_few_looks_at_each_of_several_workers_are_enough_together():
    looks = [fetch(pid, 100 * step, 10_000 * pid + 500 * step) for pid in (7, 8, 9) for step in range(1, 4)]

    slope, gained = growth.of_workers(Trial(fetches=tuple(looks)), "a#0")

    assert slope.per_step == pytest.approx(5.0)
    assert gained == pytest.approx(3_000)


def test_a_persistent_worker_goes_on_counting_in_the_next_pass():
    first = [fetch(7, 10 * step, step) for step in range(1, 5)]
    second = [fetch(7, 10 * step, 4 + step, iterator=1) for step in range(1, 5)]

    (line,) = growth.lines(Trial(fetches=(*first, *second)), "a#0").values()

    assert [samples for samples, _ in line] == [10, 20, 30, 40, 50, 60, 70, 80]
