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
        {"stall_warn": 0},
        {"stall_timeout": "30"},
    ],
    ids=str,
)
def test_every_refusal_is_reached(options):
    with pytest.raises(SettingsError):
        DataLoader(Rows(), **options)


def test_our_own_options_are_attributes():
    loader = DataLoader(Rows(), backend="thread", arena_bytes=5, pack_lists=True)
    assert (loader.backend, loader.arena_bytes, loader.pack_lists) == ("thread", 5, True)


def test_the_limits_of_a_stall_are_attributes():
    loader = DataLoader(Rows(), stall_warn=None, stall_timeout=7)
    assert (loader.stall_warn, loader.stall_timeout) == (None, 7)
    loader = DataLoader(Rows())
    assert (loader.stall_warn, loader.stall_timeout) == ("auto", 30.0)


@pytest.mark.parametrize("name", ["backend", "arena_bytes", "pack_lists", "stall_warn", "stall_timeout"])
def test_our_own_options_are_keyword_only(name):
    assert name in DataLoader.__init__.__kwdefaults__


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
