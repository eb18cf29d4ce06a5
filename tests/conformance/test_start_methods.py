"""Start methods: what a worker inherits and what is shipped to it. Rows of torch's take seconds."""

from __future__ import annotations

import multiprocessing
from multiprocessing import forkserver, resource_tracker

import pytest
from torch.utils.data import DataLoader as TorchLoader

from . import datasets
from .comparing import assert_same, seeded
from .datasets import Draws, Failing, ReadsGlobal, WorkerFacts, as_given, mark_dataset, outcomes

SHIPPED = pytest.mark.parametrize("method", ["spawn", "forkserver"])
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _servers_of_multiprocessing():
    """Python's own helper processes stay for the life of the program: start them before the tests."""
    resource_tracker.ensure_running()
    forkserver.ensure_running()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_start_method_changes_no_batch_and_no_seed(loader_class, method):
    def epochs(cls, method):
        loader = cls(
            Draws(),
            batch_size=2,
            shuffle=True,
            generator=seeded(),
            num_workers=1,
            persistent_workers=True,
            multiprocessing_context=method,
        )
        return [list(loader) for _ in range(2)]

    assert_same(epochs(loader_class, method), epochs(TorchLoader, "fork"))


@SHIPPED
def test_a_worker_that_is_not_forked_has_globals_as_imported(loader_class, method, monkeypatch):
    monkeypatch.setattr(datasets, "GLOBAL_MARK", "set in main")
    loader = loader_class(ReadsGlobal(), batch_size=None, num_workers=1, multiprocessing_context=method)
    assert list(loader) == ["as imported"] * 2


def test_dataset_collate_and_init_are_shipped_to_spawned_workers(loader_class):
    dataset = WorkerFacts(2)
    dataset.size = 3
    loader = loader_class(
        dataset,
        batch_size=2,
        num_workers=1,
        collate_fn=as_given,
        worker_init_fn=mark_dataset,
        multiprocessing_context="spawn",
    )
    found = [[row["mark"] for row in batch] for batch in loader]
    assert found == [["worker 0 was here"] * 2, ["worker 0 was here"]]


def test_an_error_in_a_spawned_worker_keeps_type_and_text(loader_class):
    loader = loader_class(
        Failing(LookupError("gone"), size=2, bad=1),
        batch_size=None,
        num_workers=1,
        multiprocessing_context="spawn",
    )
    found = outcomes(loader)
    assert found[0] == 0
    assert type(found[1]) is LookupError
    assert "gone" in str(found[1])


@pytest.fixture
def spawn_by_default():
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("spawn", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.mark.usefixtures("spawn_by_default")
def test_the_default_start_method_of_the_program_is_honoured(loader_class, monkeypatch):
    monkeypatch.setattr(datasets, "GLOBAL_MARK", "set in main")
    loader = loader_class(ReadsGlobal(), batch_size=None, num_workers=1)
    assert list(loader) == ["as imported"] * 2
