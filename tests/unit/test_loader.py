"""The class itself; what it shares with torch's is in tests/conformance."""

from __future__ import annotations

import copy
import os
import pickle

import pytest
import torch

from penstock import DataLoader
from penstock import _loader as module
from penstock._arena.arena import Arena
from penstock._base import host
from penstock._engine.backends import choice
from penstock._loader import Warm
from penstock.errors import SettingsError


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.tensor(index)


@pytest.fixture(autouse=True)
def many_cpus(monkeypatch):
    monkeypatch.setattr(host, "cpu_count", lambda: 64)


# ---- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": -1},
        {"batch_size": 0},
        {"prefetch_factor": 2},
        {"num_workers": 1, "prefetch_factor": 0},
        {"timeout": -1},
        {"persistent_workers": True},
        {"multiprocessing_context": "fork"},
        {"backend": "procces"},
        {"arena_bytes": 0},
        {"pack_lists": 1},
        {"seed": -1},
        {"seed": 1, "backend": "thread"},
        {"cure": "yes"},
        {"on_iterable_crash": "skip"},
        {"on_error": "ignore"},
        {"on_error": None},
        {"quarantine": 3},
        {"quarantine": "/nowhere/bad.jsonl"},
        {"stall_warn": 0},
        {"stall_timeout": "30"},
    ],
    ids=str,
)
def test_every_refusal_is_reached(options):
    with pytest.raises(SettingsError):
        DataLoader(Rows(), **options)


def test_our_own_options_are_attributes():
    loader = DataLoader(Rows(), backend="thread", arena_bytes=5, pack_lists=True, on_error="skip")
    assert (loader.backend, loader.arena_bytes, loader.pack_lists) == ("thread", 5, True)
    assert (loader.on_error, loader.quarantine) == ("skip", None)
    assert (loader.seed, DataLoader(Rows(), seed=3).seed) == (None, 3)
    loader = DataLoader(Rows(), cure=True, on_iterable_crash="replay")
    assert (loader.cure, loader.on_iterable_crash) == (True, "replay")


def test_the_limits_of_a_stall_are_attributes():
    loader = DataLoader(Rows(), stall_warn=None, stall_timeout=7)
    assert (loader.stall_warn, loader.stall_timeout) == (None, 7)
    loader = DataLoader(Rows())
    assert (loader.stall_warn, loader.stall_timeout) == ("auto", 30.0)


OWN = [
    "backend",
    "arena_bytes",
    "pack_lists",
    "max_restarts",
    "seed",
    "cure",
    "on_iterable_crash",
    "on_error",
]


@pytest.mark.parametrize("name", [*OWN, "quarantine", "stall_warn", "stall_timeout"])
def test_our_own_options_are_keyword_only(name):
    assert name in DataLoader.__init__.__kwdefaults__


def test_the_epoch_is_a_count():
    loader = DataLoader(Rows(), seed=3)
    assert loader.epoch == 0
    with pytest.raises(SettingsError) as caught:
        loader.epoch = -1
    assert str(caught.value) == (
        "[PS002] epoch should be non-negative\n"
        "  why:  got epoch=-1\n"
        "  fix:  the nearest allowed value is epoch=0\n"
        "  more: penstock explain PS002"
    )
    with pytest.raises(TypeError):
        loader.epoch = "2"
    loader.epoch = torch.tensor(5)
    iter(loader)
    assert loader.epoch == 6


def test_a_seeded_loader_can_be_copied_between_epochs():
    loader = DataLoader(Rows(), batch_size=10, shuffle=True, seed=3)
    first = list(loader)
    copies = [copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))]
    second = list(loader)
    assert not torch.equal(first[0], second[0])
    assert all(torch.equal(next(iter(each)), second[0]) for each in copies)


def test_an_epoch_that_cannot_begin_does_not_count(monkeypatch):
    loader = DataLoader(Rows(), shuffle=True, seed=3)
    monkeypatch.setattr(module, "InlineBackend", lambda job: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        iter(loader)
    assert loader.epoch == 0
    assert loader.sampler.generator is None


def test_a_seed_is_kept_in_the_training_process_where_there_are_no_processes(monkeypatch):
    expected = list(DataLoader(Rows(), shuffle=True, seed=3))
    monkeypatch.setattr(choice, "has_processes", lambda: False)
    with pytest.warns(UserWarning, match="PS005") as caught:
        got = list(DataLoader(Rows(), shuffle=True, num_workers=2, seed=3))
    assert got == expected
    assert [str(each.message) for each in caught] == [
        "[PS005] penstock's process workers need Linux; with `seed` this loader makes its batches in the "
        "training process instead."
    ]


# ---- backends without processes -----------------------------------------------------------------


@pytest.mark.parametrize("backend", ["inline", "thread", "auto"])
def test_a_loader_without_processes_has_the_batches(backend):
    loader = DataLoader(Rows(), batch_size=4, num_workers=2, backend=backend)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_auto_chooses_inline_for_batches_that_cost_nothing(monkeypatch):
    monkeypatch.setattr(choice, "HAND_OVER_S", 60.0)
    iterator = iter(DataLoader(Rows(), num_workers=2, backend="auto"))
    assert iterator.choice.backend == "inline"


def test_auto_measures_once(monkeypatch):
    monkeypatch.setattr(choice, "HAND_OVER_S", 60.0)
    measured = []
    monkeypatch.setattr(module, "time_of_a_batch", lambda job, indices: measured.append(indices) or 1e-6)
    loader = DataLoader(Rows(), batch_size=4, num_workers=2, backend="auto")
    iter(loader), iter(loader)
    assert measured == [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]]


def test_auto_measures_single_samples_without_batches(monkeypatch):
    monkeypatch.setattr(choice, "HAND_OVER_S", 60.0)
    measured = []
    monkeypatch.setattr(module, "time_of_a_batch", lambda job, indices: measured.append(indices) or 1e-6)
    iter(DataLoader(Rows(), batch_size=None, num_workers=2, backend="auto"))
    assert measured == [[0, 1, 2]]


def test_without_workers_the_iterator_is_torchs():
    assert not isinstance(iter(DataLoader(Rows())), module.LoaderIterator)


def test_with_an_error_policy_it_is_ours():
    iterator = iter(DataLoader(Rows(), on_error="skip"))
    assert isinstance(iterator, module.LoaderIterator)
    assert iterator.choice.backend == "inline"


def test_without_our_processes_an_error_policy_is_refused(monkeypatch):
    monkeypatch.setattr(choice, "has_processes", lambda: False)
    with pytest.raises(SettingsError) as caught:
        iter(DataLoader(Rows(), num_workers=1, on_error="skip"))
    assert str(caught.value) == (
        "[PS005] this platform has no process workers of ours, and torch's know no on_error or quarantine\n"
        "  fix:  pass backend='thread', or set num_workers=0\n"
        "  more: penstock explain PS005"
    )


def pool(**options):
    return module._pool(DataLoader(Rows(), **options))


def test_a_sampler_of_the_whole_dataset_lets_all_of_it_replace():
    distributed = torch.utils.data.DistributedSampler(Rows(), 2, 0)
    whole = [{}, {"shuffle": True}, {"batch_size": None}, {"sampler": distributed}]
    assert [pool(**options) for options in whole] == [10, 10, 10, 10]


def test_a_sampler_of_a_part_lets_none_but_its_own_replace():
    subset = torch.utils.data.SubsetRandomSampler([1, 2])
    parts = [
        {"sampler": subset},
        {"sampler": [1, 2]},
        {"sampler": torch.utils.data.RandomSampler(range(5))},
        {"batch_sampler": [[1], [2]]},
        {"batch_sampler": torch.utils.data.BatchSampler(subset, 2, drop_last=False)},
    ]
    assert [pool(**options) for options in parts] == [0] * 5


def test_an_iterator_in_a_fork_is_refused():
    iterator = iter(DataLoader(Rows(), num_workers=1, backend="inline"))
    iterator._owner = os.getpid() + 1
    with pytest.raises(SettingsError, match="PS006"):
        next(iterator)


def test_an_iterator_that_is_shut_down_has_ended():
    iterator = iter(DataLoader(Rows(), num_workers=1, backend="inline"))
    next(iterator)
    iterator._shutdown_workers()
    iterator._shutdown_workers()
    with pytest.raises(StopIteration):
        next(iterator)


def test_an_iterator_that_is_dropped_closes_its_engine():
    iterator = iter(DataLoader(Rows(), num_workers=1, backend="inline"))
    runtime = iterator._runtime
    del iterator
    assert runtime.is_closed


def test_persistent_workers_stay_for_the_next_epoch():
    loader = DataLoader(Rows(), batch_size=5, num_workers=1, backend="thread", persistent_workers=True)
    assert [len(list(loader)) for _ in range(3)] == [2, 2, 2]
    assert loader._iterator is not None
    assert not loader._iterator._runtime.is_closed
    loader._iterator._shutdown_workers()


# ---- warnings -----------------------------------------------------------------------------------


def test_more_workers_than_cpus_are_warned_of_in_torchs_words(monkeypatch):
    monkeypatch.setattr(host, "cpu_count", lambda: 2)
    with pytest.warns(UserWarning, match="suggested max number") as caught:
        DataLoader(Rows(), num_workers=3).check_worker_number_rationality()
    assert str(caught[0].message) == (
        "This DataLoader will create 3 worker processes in total. Our suggested max number of worker in "
        "current system is 2, which is smaller than what this DataLoader is going to create. "
        "Please be aware that excessive worker creation might get DataLoader running slow or even freeze, "
        "lower the worker number to avoid potential slowness/freeze if necessary."
    )


def test_elsewhere_than_on_linux_torchs_workers_are_used(monkeypatch):
    monkeypatch.setattr(choice, "has_processes", lambda: False)
    monkeypatch.setattr(module._StockLoader, "_get_iterator", lambda self: iter(["torch's own"]))
    with pytest.warns(UserWarning, match="PS005") as caught:
        assert list(DataLoader(Rows(), num_workers=1)) == ["torch's own"]
    assert str(caught[0].message) == (
        "[PS005] penstock's process workers need Linux; this loader uses torch's own workers instead. "
        "backend='thread' works on every platform."
    )


# ---- what stays between two passes ---------------------------------------------------------------


@pytest.fixture
def arena():
    made = Arena(1)
    made.reserve(0)
    yield made
    made.close()


def test_an_arena_stays_with_its_loader(arena):
    loader = DataLoader(Rows())
    warm = Warm.of(loader)
    warm.keep_arena(arena)
    assert not arena._is_closed
    assert Warm.of(loader).take_arena(1, is_pinned=False) is arena


def test_an_arena_is_taken_once(arena):
    warm = Warm.of(loader := DataLoader(Rows()))
    warm.keep_arena(arena)
    warm.take_arena(1, is_pinned=False)
    other = warm.take_arena(5, is_pinned=False)
    assert other is not arena
    assert other.budget == 5
    other.close()
    del loader


def test_a_second_arena_is_closed(arena):
    loader = DataLoader(Rows())
    warm = Warm.of(loader)
    warm.keep_arena(arena)
    other = Arena(1)
    warm.keep_arena(other)
    assert other._is_closed
    assert not arena._is_closed


def test_the_arena_of_a_loader_that_is_gone_is_closed(arena):
    loader = DataLoader(Rows())
    warm = Warm.of(loader)
    del loader
    warm.keep_arena(arena)
    assert arena._is_closed


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))]
)
def test_a_copy_of_a_loader_keeps_its_own(arena, duplicate):
    loader = DataLoader(Rows())
    Warm.of(loader).keep_arena(arena)
    other = duplicate(loader)
    assert Warm.of(other) is not Warm.of(loader)
    assert Warm.of(other).arena is None
    assert Warm.of(loader).arena is arena
