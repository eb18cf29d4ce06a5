"""Random numbers: what each worker draws, and what the loader takes from the main process."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import RandomSampler, WeightedRandomSampler

from .comparing import (
    assert_agrees_with_torch,
    assert_same,
    iterating,
    random_state,
    seed_everything,
    seeded,
)
from .datasets import Draws, Ints, reseed
from .samplers import CountingSampler, EagerSampler, LazySampler

WORKERS = pytest.mark.parametrize("num_workers", [0, 1, 2])


@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("with_generator", [False, True])
def test_random_augmentation_draws_the_numbers_of_torch(
    loader_class, num_workers, persistent, with_generator
):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(
            Draws(),
            batch_size=2,
            shuffle=True,
            num_workers=num_workers,
            persistent_workers=persistent and num_workers > 0,
            generator=seeded() if with_generator else None,
        ),
        epochs=2,
    )


def test_augmentation_without_batching_draws_the_numbers_of_torch(loader_class):
    assert_agrees_with_torch(loader_class, lambda cls: cls(Draws(), batch_size=None, num_workers=2), epochs=2)


def test_reseeding_in_worker_init_has_its_effect(loader_class):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(Draws(), batch_size=2, num_workers=2, worker_init_fn=reseed),
        epochs=2,
    )


def test_the_seed_of_a_worker_is_the_base_seed_plus_its_number(loader_class):
    expected = torch.empty((), dtype=torch.int64).random_(generator=seeded()).item()
    loader = loader_class(Draws(2), batch_size=None, num_workers=2, generator=seeded())
    assert [row["initial_seed"] for row in loader] == [expected, expected + 1]


def test_the_base_seed_is_an_attribute_of_the_iterator(loader_class):
    with iterating(loader_class(Draws(2), batch_size=None, num_workers=1)) as iterator:
        assert next(iterator)["initial_seed"] == iterator._base_seed


def test_workers_draw_differently_from_each_other(loader_class):
    rows = list(loader_class(Draws(2), batch_size=None, num_workers=2))
    for kind in ("torch", "numpy", "random"):
        assert str(rows[0][kind]) != str(rows[1][kind])


def test_two_epochs_of_fresh_workers_draw_differently(loader_class):
    loader = loader_class(Draws(1), batch_size=None, num_workers=1)
    (first,), (second,) = list(loader), list(loader)
    assert first["initial_seed"] != second["initial_seed"]


def test_persistent_workers_go_on_drawing_where_they_were(loader_class):
    loader = loader_class(Draws(1), batch_size=None, num_workers=1, persistent_workers=True)
    (first,), (second,) = list(loader), list(loader)
    assert first["initial_seed"] == second["initial_seed"]
    assert first["random"] != second["random"]


def test_workers_leave_the_random_state_of_the_main_process_alone(loader_class):
    loader = loader_class(Draws(), num_workers=1, generator=seeded())
    before = random_state()
    list(loader)
    assert_same(random_state(), before)


SETTINGS = {
    "no shuffle": {},
    "shuffle": {"shuffle": True},
    "shuffle, no batching": {"shuffle": True, "batch_size": None},
    "weighted": {"sampler": WeightedRandomSampler([1.0] * 8, 8)},
    "weighted, no batching": {"sampler": WeightedRandomSampler([1.0] * 8, 8), "batch_size": None},
    "replacement": {"sampler": RandomSampler(range(8), replacement=True)},
    "draws at once": {"sampler": EagerSampler()},
    "draws at once, no batching": {"sampler": EagerSampler(), "batch_size": None},
    "draws one by one": {"sampler": LazySampler()},
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_making_an_iterator_takes_the_same_draws_from_the_global_generator(
    loader_class, settings, num_workers
):
    def state_after_iter(cls):
        seed_everything()
        with iterating(cls(Ints(20), num_workers=num_workers, **SETTINGS[settings])):
            return random_state()

    assert_same(state_after_iter(loader_class), state_after_iter(TorchLoader))


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_training_step_draws_the_same_numbers_between_batches(loader_class, settings, num_workers):
    def run(cls):
        seed_everything()
        loader = cls(Ints(20), num_workers=num_workers, **SETTINGS[settings])
        return [(int(batch), float(torch.rand(()))) for batch in loader]

    assert run(loader_class) == run(TorchLoader)


@pytest.mark.parametrize("persistent", [False, True])
def test_the_given_generator_stands_where_torch_leaves_it(loader_class, persistent):
    def states(cls):
        generator = seeded()
        loader = cls(
            Ints(40),
            batch_size=3,
            num_workers=2,
            generator=generator,
            sampler=RandomSampler(range(40), replacement=True, num_samples=90, generator=generator),
            persistent_workers=persistent,
        )
        found = []
        for _ in range(2):
            iterator = iter(loader)
            found.append(generator.get_state())
            for _ in iterator:
                found.append(generator.get_state())
        return found

    assert_same(states(loader_class), states(TorchLoader))


@pytest.mark.parametrize(("num_workers", "prefetch_factor"), [(1, 1), (1, 3), (2, 2)])
def test_the_sampler_is_read_ahead_as_far_as_by_torch(loader_class, num_workers, prefetch_factor):
    def reads(cls):
        sampler = CountingSampler(20)
        options = {"num_workers": num_workers, "prefetch_factor": prefetch_factor}
        found = []
        with iterating(cls(Ints(20), sampler=sampler, **options)) as iterator:
            found.append(sampler.read)
            for _ in range(4):
                next(iterator)
                found.append(sampler.read)
        return found

    expected = reads(TorchLoader)
    assert expected[0] == num_workers * prefetch_factor
    assert reads(loader_class) == expected


def test_without_workers_the_sampler_is_not_read_ahead(loader_class):
    sampler = CountingSampler(20)
    iterator = iter(loader_class(Ints(20), sampler=sampler))
    next(iterator)
    assert sampler.read == 1


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_the_sampler_is_started_as_often_as_by_torch(loader_class, num_workers, batch_size):
    def starts(cls):
        sampler = CountingSampler(4)
        options = {"persistent_workers": num_workers > 0, "num_workers": num_workers}
        loader = cls(Ints(4), sampler=sampler, batch_size=batch_size, **options)
        return [(len(list(loader)), sampler.started) for _ in range(3)]

    assert starts(loader_class) == starts(TorchLoader)


class OwnGenerator(Ints):
    """Keeps a generator object of its own: the workers copy it."""

    def __init__(self):
        super().__init__(4)
        self.generator = np.random.default_rng(5)

    def __getitem__(self, index):
        return self.generator.integers(1000)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_generator_object_in_the_dataset_is_copied_into_every_worker(loader_class, persistent):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # penstock says once that this is seldom meant
        assert_agrees_with_torch(
            loader_class,
            lambda cls: cls(OwnGenerator(), num_workers=2, persistent_workers=persistent),
            epochs=2,
        )
