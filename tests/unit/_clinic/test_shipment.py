"""A loader at hand becomes a program."""

from __future__ import annotations

import runpy
import threading
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from penstock._clinic.report import Report
from penstock._clinic.shipment import with_loader


def shipped(loader):
    """The loader that the program of a target builds, and the report."""
    found = []

    def examine(target):
        file, _, name = target.rpartition(":")
        found.append(runpy.run_path(file)[name]())
        return Report(target, "healthy", 1.0)

    report = with_loader(loader, examine)
    return (found[0] if found else None), report


def batches(loader):
    return [batch.tolist() for batch in loader]


class Local(Dataset):
    def __init__(self, function):
        self.function = function

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return self.function(index)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(7))


def test_lambdas_and_settings_arrive():
    loader = DataLoader(Local(lambda index: index * 2), batch_size=4, drop_last=True, num_workers=0)
    other, report = shipped(loader)
    assert batches(other) == batches(loader) == [[0, 2, 4, 6], [8, 10, 12, 14]]
    assert report.target == "the loader over Local"


def test_a_generator_shuffles_in_the_same_order():
    generator = torch.Generator().manual_seed(5)
    loader = DataLoader(Local(int), batch_size=3, shuffle=True, generator=generator)
    other, _ = shipped(loader)
    assert batches(other) == batches(loader)


def test_a_batch_sampler_and_a_stream_arrive():
    other, _ = shipped(DataLoader(Local(int), batch_sampler=[[1, 2], [7]]))
    assert batches(other) == [[1, 2], [7]]
    other, _ = shipped(DataLoader(Stream(), batch_size=5))
    assert batches(other) == [[0, 1, 2, 3, 4], [5, 6]]


def test_options_of_workers_arrive():
    loader = DataLoader(
        TensorDataset(torch.arange(4)),
        num_workers=2,
        prefetch_factor=3,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    other, _ = shipped(loader)
    assert (other.num_workers, other.prefetch_factor, other.persistent_workers) == (2, 3, True)
    assert other.multiprocessing_context.get_start_method() == "spawn"


def test_what_cannot_be_shipped_is_named():
    other, report = shipped(DataLoader(Local(threading.Lock())))
    assert other is None
    assert (report.verdict, report.reason.code) == ("could-not-run", "PS921")
    assert "lock" in report.reason.why


def test_nothing_is_left_behind():
    places = []

    def examine(target):
        places.append(Path(target.rpartition(":")[0]).parent)
        return Report(target, "healthy", 1.0)

    with_loader(DataLoader(Stream()), examine)
    assert not places[0].exists()
