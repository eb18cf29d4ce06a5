"""Worker processes: what they know, what they inherit, and that they leave."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import get_worker_info

from . import datasets
from .comparing import descendants, is_running, iterating
from .datasets import Ints, ReadsGlobal, Sharded, WorkerFacts, mark_dataset


def facts(loader_class, **options):
    """What each sample's worker told about itself."""
    return list(loader_class(WorkerFacts(), batch_size=None, **options))


def test_samples_are_made_in_other_processes(loader_class):
    assert os.getpid() not in {row["pid"] for row in facts(loader_class, num_workers=2)}


def test_without_workers_samples_are_made_in_this_process(loader_class):
    assert {row["pid"] for row in facts(loader_class)} == {os.getpid()}


def test_batches_go_to_the_workers_in_turn(loader_class):
    assert [row["id"] for row in facts(loader_class, num_workers=2)] == [0, 1, 0, 1]


def test_each_worker_is_one_process(loader_class):
    rows = facts(loader_class, num_workers=2)
    assert len({row["pid"] for row in rows}) == 2
    assert len({(row["pid"], row["id"]) for row in rows}) == 2


def test_a_worker_knows_how_many_there_are(loader_class):
    assert {row["num_workers"] for row in facts(loader_class, num_workers=2)} == {2}


def test_the_seed_that_a_worker_knows_is_the_one_in_use(loader_class):
    assert all(row["seed"] == row["initial_seed"] for row in facts(loader_class, num_workers=2))


def test_the_dataset_that_a_worker_knows_is_the_one_in_use(loader_class):
    assert all(row["dataset_is_mine"] for row in facts(loader_class, num_workers=1))


def test_there_is_no_worker_info_without_workers(loader_class):
    assert {row["id"] for row in facts(loader_class)} == {None}


def test_there_is_no_worker_info_in_the_main_process(loader_class):
    with iterating(loader_class(WorkerFacts(), batch_size=None, num_workers=1)) as iterator:
        next(iterator)
        assert get_worker_info() is None


def test_a_worker_uses_one_thread(loader_class):
    assert {row["threads"] for row in facts(loader_class, num_workers=1)} == {1}


def test_the_thread_count_of_the_main_process_is_left_alone(loader_class):
    before = torch.get_num_threads()
    facts(loader_class, num_workers=1)
    assert torch.get_num_threads() == before


def test_worker_init_may_change_the_dataset_of_its_worker(loader_class):
    rows = facts(loader_class, num_workers=2, worker_init_fn=mark_dataset)
    assert [row["mark"] for row in rows] == [f"worker {n} was here" for n in (0, 1, 0, 1)]


def test_worker_init_may_be_a_closure(loader_class):
    calls = []
    rows = facts(loader_class, num_workers=1, worker_init_fn=lambda n: calls.append(n) or mark_dataset(n))
    assert rows[0]["mark"] == "worker 0 was here"
    assert calls == []


def test_worker_init_runs_once_in_persistent_workers(loader_class):
    class Counts(WorkerFacts):
        count = 0

        def __getitem__(self, index):
            return self.count

    def count(worker_id):
        get_worker_info().dataset.count += 1

    loader = loader_class(
        Counts(2), batch_size=None, num_workers=1, worker_init_fn=count, persistent_workers=True
    )
    assert [list(loader), list(loader)] == [[1, 1], [1, 1]]


def test_persistent_workers_are_the_same_processes_in_every_epoch(loader_class):
    loader = loader_class(WorkerFacts(), batch_size=None, num_workers=2, persistent_workers=True)
    first, second = ({row["pid"] for row in loader} for _ in range(2))
    assert first == second


def test_a_global_set_by_the_script_is_seen_in_a_forked_worker(loader_class, monkeypatch):
    monkeypatch.setattr(datasets, "GLOBAL_MARK", "set in main")
    assert list(loader_class(ReadsGlobal(), batch_size=None, num_workers=1)) == ["set in main"] * 2


def test_a_forked_worker_has_directory_and_environment_of_its_loader(loader_class, monkeypatch, tmp_path):
    class Surroundings(Ints):
        def __getitem__(self, index):
            return str(Path.cwd()), os.environ["PENSTOCK_TEST"]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_TEST", "here")
    loader = loader_class(Surroundings(1), batch_size=None, num_workers=1)
    assert list(loader) == [[str(tmp_path), "here"]]


def test_a_forked_worker_has_the_default_dtype_of_its_loader(loader_class):
    class Zeros(Ints):
        def __getitem__(self, index):
            return torch.zeros(1)

    torch.set_default_dtype(torch.float64)
    try:
        (batch,) = loader_class(Zeros(1), num_workers=1)
    finally:
        torch.set_default_dtype(torch.float32)
    assert batch.dtype is torch.float64


def test_a_forked_worker_shares_the_shared_tensors_of_the_dataset(loader_class):
    class Writes(Ints):
        def __init__(self):
            super().__init__(4)
            self.shared = torch.zeros(4).share_memory_()

        def __getitem__(self, index):
            self.shared[index] = index + 1
            return index

    dataset = Writes()
    list(loader_class(dataset, num_workers=2))
    assert dataset.shared.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_workers_of_an_iterator_can_be_seen(loader_class, num_workers):
    with iterating(loader_class(WorkerFacts(), batch_size=None, num_workers=num_workers)) as it:
        assert len(it._workers) == num_workers
        assert all(worker.is_alive() for worker in it._workers)
        assert [worker.exitcode for worker in it._workers] == [None] * num_workers
        assert {row["pid"] for row in it} == {worker.pid for worker in it._workers}


@pytest.mark.parametrize("dataset", [Ints(), Sharded()], ids=["map", "stream"])
def test_the_workers_leave_at_the_end_of_the_epoch(loader_class, dataset):
    before = descendants()
    iterator = iter(loader_class(dataset, num_workers=2))
    workers = list(iterator._workers)
    list(iterator)
    assert not any(worker.is_alive() for worker in workers)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert descendants() <= before


def test_the_workers_leave_when_the_loop_is_cut_short(loader_class):
    before = descendants()
    iterator = iter(loader_class(Ints(50), num_workers=2))
    next(iterator)
    pids = [worker.pid for worker in iterator._workers]
    del iterator
    gc.collect()
    assert not any(is_running(pid) for pid in pids)
    assert descendants() <= before


def test_persistent_workers_stay_after_the_epoch(loader_class):
    loader = loader_class(Ints(), num_workers=2, persistent_workers=True)
    list(loader)
    assert all(worker.is_alive() for worker in loader._iterator._workers)


def test_persistent_workers_leave_with_their_loader(loader_class):
    before = descendants()
    loader = loader_class(Ints(), num_workers=2, persistent_workers=True)
    list(loader)
    pids = [worker.pid for worker in loader._iterator._workers]
    del loader
    gc.collect()
    assert not any(is_running(pid) for pid in pids)
    assert descendants() <= before


def test_shutting_down_ends_the_workers(loader_class):
    iterator = iter(loader_class(Ints(50), num_workers=2))
    workers = list(iterator._workers)
    iterator._shutdown_workers()
    for worker in workers:
        worker.join(10)
        assert not worker.is_alive()


def test_shutting_down_twice_does_no_harm(loader_class):
    iterator = iter(loader_class(Ints(50), num_workers=1))
    next(iterator)
    iterator._shutdown_workers()
    iterator._shutdown_workers()


def test_persistent_workers_can_be_shut_down_and_made_again(loader_class):
    loader = loader_class(Ints(4), num_workers=1, persistent_workers=True)
    list(loader)
    loader._iterator._shutdown_workers()
    loader._iterator = None
    assert len(list(loader)) == 4


def test_no_thread_is_left_at_the_end_of_the_epoch(loader_class):
    list(loader_class(Ints(), num_workers=1))
    before = set(threading.enumerate())
    list(loader_class(Ints(), num_workers=2))
    gc.collect()
    deadline = time.monotonic() + 10
    while not set(threading.enumerate()) <= before and time.monotonic() < deadline:
        time.sleep(0.01)  # threads of torch's queues end by themselves, soon
    assert set(threading.enumerate()) <= before
