"""However an iteration ends, it ends at once and leaves nothing, which the check around every test sees."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import Dataset

from penstock import DataLoader

from .datasets import Numbers, Pictures, Sleepers, Stream, is_right
from .stage import SOON_S, wait_until

pytestmark = pytest.mark.timeout(60)


@contextlib.contextmanager
def quickly(limit_s: float = SOON_S):
    """What happens inside takes no longer than an ending may take."""
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert took < limit_s, f"took {took:.2f} s"


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pids(iterator) -> list[int]:
    return [worker.pid for worker in iterator._workers]


def test_an_early_break_ends_the_workers():
    loader = DataLoader(Pictures(), batch_size=2, num_workers=2)
    iterator = iter(loader)
    workers = pids(iterator)
    with quickly():
        for _ in iterator:
            break
        del iterator
    assert not any(map(is_running, workers))


def test_an_early_break_does_not_wait_for_a_long_sample():
    loader = DataLoader(Sleepers(awake=2), batch_size=1, num_workers=2)
    iterator = iter(loader)
    workers = pids(iterator)
    assert next(iterator).shape[0] == 1
    with quickly():
        del iterator
    assert not any(map(is_running, workers))


def test_a_long_sample_in_the_first_batch_does_not_hold_up_the_end():
    iterator = iter(DataLoader(Sleepers(), batch_size=1, num_workers=2))
    with quickly():
        del iterator


def test_an_iterator_that_is_never_asked_ends_with_its_last_reference():
    iterator = iter(DataLoader(Pictures(), num_workers=2))
    workers = pids(iterator)
    with quickly():
        del iterator
    assert not any(map(is_running, workers))


def test_an_iterator_in_a_cycle_ends_when_it_is_collected():
    iterator = iter(DataLoader(Pictures(), num_workers=2))
    next(iterator)
    workers = pids(iterator)
    cycle = [iterator]
    cycle.append(cycle)
    del iterator, cycle
    with quickly():
        gc.collect()
    assert not any(map(is_running, workers))


def test_an_iterator_that_another_thread_collects_ends():
    iterator = iter(DataLoader(Pictures(), num_workers=2))
    next(iterator)
    workers = pids(iterator)
    box = [iterator]
    del iterator
    thread = threading.Thread(target=box.clear)
    with quickly():
        thread.start()
        thread.join()
    assert not any(map(is_running, workers))


def test_an_exception_in_the_loop_ends_the_workers():
    workers = []

    def train():
        iterator = iter(DataLoader(Pictures(), num_workers=2))
        workers.extend(pids(iterator))
        for _ in iterator:
            raise ValueError("a bad loss")

    with quickly():
        with pytest.raises(ValueError, match="a bad loss"):
            train()
        gc.collect()
    assert not any(map(is_running, workers))


def test_a_generator_over_a_loader_that_is_closed_ends_the_workers():
    def batches():
        yield from DataLoader(Pictures(), num_workers=2)

    generator = batches()
    next(generator)
    with quickly():
        generator.close()


def test_a_finished_epoch_ends_the_workers_although_the_iterator_is_kept():
    iterator = iter(DataLoader(Numbers(4), num_workers=2))
    workers = pids(iterator)
    assert len(list(iterator)) == 4
    assert not any(map(is_running, workers))
    assert list(iterator) == []


def test_persistent_workers_end_with_their_loader():
    loader = DataLoader(Numbers(4), num_workers=2, persistent_workers=True)
    assert len(list(loader)) == 4
    workers = pids(loader._iterator)
    assert all(map(is_running, workers))
    with quickly():
        del loader
    assert not any(map(is_running, workers))


def test_persistent_workers_in_the_middle_of_an_epoch_end_with_their_loader():
    loader = DataLoader(Pictures(), num_workers=2, persistent_workers=True)
    for _ in loader:
        break
    workers = pids(loader._iterator)
    with quickly():
        del loader
    assert not any(map(is_running, workers))


def test_shutting_down_twice_is_once():
    iterator = iter(DataLoader(Pictures(), num_workers=2))
    next(iterator)
    iterator._shutdown_workers()
    iterator._shutdown_workers()
    with pytest.raises(StopIteration):
        next(iterator)


class LateFirst(Dataset):
    """The first sample comes when the third is asked for, so after the second."""

    def __init__(self, sign):
        self.sign = sign

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 2:
            self.sign.touch()
        until = time.monotonic() + 30
        while index == 0 and not self.sign.exists() and time.monotonic() < until:
            time.sleep(0.01)
        return torch.full((4,), index)


def test_batches_that_were_there_when_it_was_shut_down_are_gone(tmp_path):
    iterator = iter(DataLoader(LateFirst(tmp_path / "third"), num_workers=2))
    next(iterator)
    iterator._shutdown_workers()
    with pytest.raises(StopIteration):
        next(iterator)


def test_a_loader_that_has_run_gives_its_memory_back_when_it_is_dropped():
    loader = DataLoader(Pictures(), batch_size=4, num_workers=2)
    assert len(list(loader)) == 4
    del loader
    assert "memfd:penstock" not in Path("/proc/self/maps").read_text()
    links = {os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()}
    assert not [link for link in links if "memfd:penstock" in link]


def test_epochs_do_not_pile_up_descriptors():
    loader = DataLoader(Pictures(), batch_size=4, num_workers=2)
    counts = []
    for _ in range(4):
        assert len(list(loader)) == 4
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert counts[-1] == counts[1]


@pytest.mark.parametrize("prefetch_factor", [1, 4])
def test_epochs_over_a_stream_with_persistent_workers_do_not_pile_up_descriptors(prefetch_factor):
    loader = DataLoader(
        Stream(6), batch_size=2, num_workers=2, persistent_workers=True, prefetch_factor=prefetch_factor
    )
    counts = []
    for _ in range(5):
        assert len(list(loader)) == 6
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert counts[-1] == counts[1]
    del loader


def test_several_iterators_of_one_loader_live_side_by_side():
    loader = DataLoader(Pictures(), batch_size=4, num_workers=1)
    first, second, third = iter(loader), iter(loader), iter(loader)
    for number, batches in enumerate(zip(first, second, strict=True)):
        assert all(is_right(batch, range(4 * number, 4 * number + 4)) for batch in batches)
        if number == 1:
            assert is_right(next(third), range(4))
            del third
    assert is_right(next(iter(loader)), range(4))


def test_iterators_of_several_loaders_live_side_by_side():
    loaders = [DataLoader(Pictures(8), batch_size=size, num_workers=1) for size in (1, 2, 4)]
    iterators = [iter(loader) for loader in loaders]
    for size, iterator in zip((1, 2, 4), iterators, strict=True):
        assert is_right(next(iterator), range(size))
    with quickly():
        iterators.pop(1)
    assert is_right(next(iterators[0]), [1])
    assert is_right(next(iterators[1]), range(4, 8))


def test_a_loader_over_a_loop_of_another_loader_ends_the_inner_one_each_time():
    outer = DataLoader(Numbers(2), num_workers=1)
    inner = DataLoader(Numbers(6), num_workers=1)
    seen = []
    for number in outer:
        for other in inner:
            seen.append((int(number), int(other)))
            if other == 1:
                break
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_an_iterator_outlives_the_thread_that_made_it():
    box = []
    loader = DataLoader(Pictures(8), batch_size=2, num_workers=2)
    thread = threading.Thread(target=lambda: box.append(iter(loader)))
    thread.start()
    thread.join()
    for number, batch in enumerate(box.pop()):
        assert is_right(batch, range(2 * number, 2 * number + 2))
    assert number == 3


def test_an_epoch_can_run_in_a_thread_that_is_not_the_main_one():
    right = []

    def epoch():
        for number, batch in enumerate(DataLoader(Pictures(8), batch_size=2, num_workers=2)):
            right.append(is_right(batch, range(2 * number, 2 * number + 2)))

    thread = threading.Thread(target=epoch)
    thread.start()
    thread.join()
    assert right == [True] * 4


def test_thread_workers_end_after_an_early_break():
    for batch in DataLoader(Pictures(), batch_size=2, num_workers=2, backend="thread"):
        assert is_right(batch, range(2))
        break
    assert wait_until(lambda: threading.active_count() == 1, SOON_S)
