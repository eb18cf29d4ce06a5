"""What cannot go to a fresh process is refused before one is started, by its path."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import socket
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

from penstock import DataLoader
from penstock._engine.backends import birth
from penstock.errors import DataError, ShippingError
from tests.conftest import children

from .datasets import Numbers

pytestmark = pytest.mark.timeout(60)


class Handle:
    """As libraries in C have them: it says no when it is pickled."""

    def __reduce__(self):
        raise TypeError("cannot pickle 'Handle' object")


class OnTheGpu:
    def __getstate__(self):
        raise RuntimeError("CUDA error: initialization error")


def generator():
    yield 1


HANDLES = {
    "an open file": functools.partial(Path(os.devnull).open, "rb"),
    "a database": lambda: sqlite3.connect(":memory:"),
    "a thread": lambda: threading.Thread(target=print),
    "a generator": generator,
    "a frame": sys._getframe,
    "a handle of a library": Handle,
    "an object that cannot give its state": OnTheGpu,
    "a lock of the wrong context": multiprocessing.get_context("fork").Lock,
    "a queue of the wrong context": lambda: multiprocessing.get_context("fork").SimpleQueue(),
}


def refuse(dataset, method="spawn", **options) -> ShippingError:
    """The error of a loader that cannot ship its dataset; no process may have been started."""
    birth.close_nursery()
    before = children()
    loader = DataLoader(dataset, num_workers=1, multiprocessing_context=method, **options)
    with pytest.raises(ShippingError) as caught:
        iter(loader)
    assert children() == before
    assert birth._Nursery.process is None
    return caught.value


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("make", HANDLES.values(), ids=HANDLES)
def test_a_dataset_that_holds(make, method):
    dataset = Numbers()
    dataset.handle = make()
    error = refuse(dataset, method)
    assert error.code == "PS503"
    assert "`dataset.handle" in str(error), error
    close = getattr(dataset.handle, "close", None)
    if close is not None:
        close()
    del dataset, error
    gc.collect()


def test_the_path_leads_through_everything_that_can_be_walked():
    class Part:
        pass

    dataset, part = Numbers(), Part()
    part.handle = Handle()
    dataset.transforms = {"train": [None, functools.partial(print, 1, part)]}
    error = refuse(dataset)
    assert "`dataset.transforms['train'][1]" in str(error), error


def test_a_closure_of_a_collate_function_is_named():
    database = Handle()

    def collate(samples):
        return database, samples

    error = refuse(Numbers(), collate_fn=collate)
    assert "collate_fn" in str(error)
    assert "database" in str(error)


def test_an_init_function_is_named():
    database = Handle()
    assert "init_fn" in str(refuse(Numbers(), worker_init_fn=lambda worker: database))


def test_a_refusal_is_what_torch_users_catch():
    dataset = Numbers()
    dataset.handle = Handle()
    for kind in (TypeError, RuntimeError, DataError):
        with pytest.raises(kind):
            iter(DataLoader(dataset, num_workers=1, multiprocessing_context="spawn"))


class Config(dict):
    """As many projects have it: an unknown attribute is a KeyError."""

    __getattr__ = dict.__getitem__


def test_a_part_with_unusual_attributes_is_walked_all_the_same():
    dataset = Numbers()
    dataset.config = Config(handle=Handle())
    error = refuse(dataset)
    assert error.code == "PS503"
    assert "`dataset.config" in str(error), error


def test_a_dataset_without_bottom_is_refused():
    deep = []
    for _ in range(50_000):
        deep = [deep]
    dataset = Numbers()
    dataset.deep = deep
    try:
        assert refuse(dataset).code == "PS503"
    finally:
        while deep:
            deep = deep.pop()


def test_the_same_dataset_works_forked():
    dataset = Numbers(4)
    dataset.lock, dataset.connection = threading.Lock(), sqlite3.connect(":memory:")
    first, second = socket.socketpair()
    dataset.socket = first
    try:
        assert len(list(DataLoader(dataset, num_workers=1, multiprocessing_context="fork"))) == 4
    finally:
        first.close()
        second.close()
        dataset.connection.close()
