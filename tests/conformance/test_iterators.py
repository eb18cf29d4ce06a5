"""The life of an iterator: one epoch, several at once, cut short, or used by another thread."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import pickle
import threading

import pytest
import torch
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from .comparing import assert_same, iterating
from .datasets import Gate, Ints, LoaderInside, Sharded, Squares, WithEpoch
from .payloads import OwnBatch

WORKERS = pytest.mark.parametrize("num_workers", [0, 2])
PERSISTENCE = pytest.mark.parametrize("persistent", [False, True])


def rows(batches):
    """The integers of all batches, in order."""
    return [row for batch in batches for row in batch.tolist()]


@pytest.mark.parametrize(
    ("num_workers", "kind"),
    [(0, _SingleProcessDataLoaderIter), (1, _MultiProcessingDataLoaderIter)],
)
def test_an_iterator_is_of_torchs_kind(loader_class, num_workers, kind):
    iterator = iter(loader_class(Ints(1), num_workers=num_workers))
    assert isinstance(iterator, _BaseDataLoaderIter)
    assert isinstance(iterator, kind)
    list(iterator)


@WORKERS
def test_an_iterator_is_its_own_iterator(loader_class, num_workers):
    iterator = iter(loader_class(Ints(3), num_workers=num_workers))
    assert iter(iterator) is iterator
    assert rows(iterator) == [0, 1, 2]


@WORKERS
@PERSISTENCE
def test_a_spent_iterator_stays_spent(loader_class, num_workers, persistent):
    options = {"persistent_workers": persistent and num_workers > 0}
    iterator = iter(loader_class(Ints(2), num_workers=num_workers, **options))
    assert rows(iterator) == [0, 1]
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(iterator)


@WORKERS
def test_an_iterator_knows_the_length_of_its_loader(loader_class, num_workers):
    with iterating(loader_class(Ints(), batch_size=4, num_workers=num_workers)) as iterator:
        assert len(iterator) == 3


@WORKERS
def test_an_iterator_cannot_be_pickled(loader_class, num_workers):
    loader = loader_class(Ints(), num_workers=num_workers)
    with iterating(loader) as iterator, pytest.raises(NotImplementedError):
        pickle.dumps(iterator)


@WORKERS
def test_an_iterator_counts_what_it_yielded(loader_class, num_workers):
    with iterating(loader_class(Ints(), num_workers=num_workers)) as iterator:
        next(iterator), next(iterator)
        assert iterator._num_yielded == 2


@WORKERS
def test_two_iterators_of_one_loader_run_side_by_side(loader_class, num_workers):
    loader = loader_class(Ints(6), batch_size=2, num_workers=num_workers)
    pairs = list(zip(loader, loader, strict=True))
    assert rows(one for one, _ in pairs) == rows(other for _, other in pairs) == list(range(6))


@WORKERS
def test_a_loader_may_be_iterated_inside_its_own_loop(loader_class, num_workers):
    loader = loader_class(Ints(2), num_workers=num_workers)
    assert [(int(a), int(b)) for a in loader for b in loader] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_two_loaders_may_share_one_dataset(loader_class):
    dataset = Ints(4)
    train = loader_class(dataset, num_workers=1)
    check = loader_class(dataset, num_workers=1, batch_size=2)
    first, second = iter(train), iter(check)
    assert (int(next(first)), next(second).tolist()) == (0, [0, 1])
    assert (rows(first), rows(second)) == ([1, 2, 3], [2, 3])


@pytest.mark.parametrize("outer_workers", [0, 1])
def test_a_dataset_may_run_a_loader_of_its_own(loader_class, outer_workers):
    loader = loader_class(LoaderInside(loader_class), num_workers=outer_workers)
    assert rows(loader) == [1, 3, 6]


@WORKERS
@PERSISTENCE
def test_a_loop_cut_short_does_not_disturb_the_next(loader_class, num_workers, persistent):
    options = {"persistent_workers": persistent and num_workers > 0}
    loader = loader_class(Ints(30), batch_size=2, num_workers=num_workers, **options)
    for batch in loader:
        assert batch.tolist() == [0, 1]
        break
    assert rows(loader) == list(range(30))


@PERSISTENCE
def test_a_stream_cut_short_does_not_disturb_the_next(loader_class, persistent):
    loader = loader_class(Sharded(20), batch_size=2, num_workers=2, persistent_workers=persistent)
    expected = rows(loader)
    assert next(iter(loader)).tolist() == [0, 2]
    assert rows(loader) == expected


@WORKERS
@PERSISTENCE
def test_the_first_batch_may_be_asked_for_again_and_again(loader_class, num_workers, persistent):
    options = {"persistent_workers": persistent and num_workers > 0}
    loader = loader_class(Ints(), batch_size=3, num_workers=num_workers, **options)
    for _ in range(4):
        assert next(iter(loader)).tolist() == [0, 1, 2]


def test_part_of_an_epoch_may_be_taken(loader_class):
    loader = loader_class(Ints(30), batch_size=2, num_workers=2)
    assert rows(itertools.islice(loader, 4)) == list(range(8))


def test_persistent_workers_keep_one_iterator(loader_class):
    loader = loader_class(Ints(4), num_workers=1, persistent_workers=True)
    first = iter(loader)
    list(first)
    assert loader._iterator is first
    assert iter(loader) is first


def test_other_workers_keep_none(loader_class):
    loader = loader_class(Ints(4), num_workers=1)
    first = iter(loader)
    assert loader._iterator is None
    second = iter(loader)
    assert first is not second
    assert rows(first) == rows(second)


def test_asking_persistent_workers_for_an_iterator_starts_the_epoch_again(loader_class):
    loader = loader_class(Ints(6), num_workers=2, persistent_workers=True)
    first = iter(loader)
    assert [int(next(first)), int(next(first))] == [0, 1]
    assert rows(iter(loader)) == list(range(6))


@pytest.mark.parametrize("num_workers", [1, 2])
def test_persistent_workers_run_many_epochs(loader_class, num_workers):
    loader = loader_class(Squares(6), batch_size=4, num_workers=num_workers, persistent_workers=True)
    expected = list(torch.utils.data.DataLoader(Squares(6), batch_size=4))
    for _ in range(10):
        assert_same(list(loader), expected)


@WORKERS
def test_fresh_workers_see_what_the_main_process_changed(loader_class, num_workers):
    dataset = WithEpoch(2)
    loader = loader_class(dataset, num_workers=num_workers)
    epochs = []
    for epoch in range(3):
        dataset.set_epoch(epoch)
        epochs.append(rows(loader))
    assert epochs == [[0, 1], [100, 101], [200, 201]]


@pytest.mark.filterwarnings("ignore")  # penstock says once that this is seldom meant
def test_persistent_workers_do_not_see_what_the_main_process_changed(loader_class):
    dataset = WithEpoch(2)
    loader = loader_class(dataset, num_workers=1, persistent_workers=True)
    epochs = []
    for epoch in range(3):
        dataset.set_epoch(epoch)
        epochs.append(rows(loader))
    assert epochs == [[0, 1]] * 3


@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_do_not_change_the_dataset_of_the_main_process(loader_class, num_workers):
    class Remembers(Ints):
        def __init__(self):
            super().__init__(4)
            self.seen = []

        def __getitem__(self, index):
            self.seen.append(index)
            return len(self.seen)

    dataset = Remembers()
    loader = loader_class(dataset, num_workers=num_workers)
    assert rows(loader) == [number // num_workers + 1 for number in range(4)]
    assert dataset.seen == []


@WORKERS
def test_another_thread_may_consume_the_iterator(loader_class, num_workers):
    iterator = iter(loader_class(Ints(), batch_size=2, num_workers=num_workers))
    found = []
    thread = threading.Thread(target=lambda: found.extend(rows(iterator)))
    thread.start()
    thread.join()
    assert found == list(range(10))


@WORKERS
def test_another_thread_may_make_the_iterator(loader_class, num_workers):
    loader = loader_class(Ints(), batch_size=2, num_workers=num_workers)
    found = []
    thread = threading.Thread(target=lambda: found.extend(rows(loader)))
    thread.start()
    thread.join()
    assert found == list(range(10))


def test_threads_may_take_turns_with_one_iterator(loader_class):
    iterator = iter(loader_class(Ints(20), num_workers=2))
    found = []
    for _ in range(4):
        thread = threading.Thread(target=lambda: found.extend(rows(itertools.islice(iterator, 5))))
        thread.start()
        thread.join()
    assert found == list(range(20))
    assert list(iterator) == []


def test_two_threads_may_each_run_a_loader(loader_class):
    found = {}

    def consume(name):
        found[name] = rows(loader_class(Ints(30), batch_size=3, num_workers=1))

    threads = [threading.Thread(target=consume, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"a": list(range(30)), "b": list(range(30))}


def test_a_batch_later_than_the_timeout_is_an_error(loader_class):
    gate = multiprocessing.Event()
    loader = loader_class(Gate(gate), num_workers=1, timeout=0.3)
    with iterating(loader) as iterator:
        assert int(next(iterator)) == 0
        with pytest.raises(RuntimeError, match=r"timed out after 0\.3 seconds"):
            next(iterator)
        gate.set()


def test_a_batch_that_was_late_is_not_lost(loader_class):
    gate = multiprocessing.Event()
    loader = loader_class(Gate(gate), num_workers=1, timeout=0.3)
    iterator = iter(loader)
    assert int(next(iterator)) == 0
    with pytest.raises(RuntimeError, match="timed out"):
        next(iterator)
    gate.set()
    iterator._timeout = 30
    assert rows(iterator) == [1, 2, 3]


def test_a_timeout_that_is_long_enough_changes_nothing(loader_class):
    assert rows(loader_class(Ints(), num_workers=2, timeout=60)) == list(range(10))


def test_an_iterator_dropped_without_a_batch_leaves_in_peace(loader_class):
    iterator = iter(loader_class(Ints(), num_workers=2))
    del iterator
    gc.collect()


def test_the_profiler_shows_the_loader_under_its_usual_name(loader_class):
    with torch.autograd.profiler.profile() as profile:
        list(loader_class(Ints(2), num_workers=1))
    assert any(event.key.startswith("enumerate(DataLoader)#") for event in profile.key_averages())


@pytest.mark.parametrize("num_workers", [0, 1])
def test_pinning_without_an_accelerator_is_warned_about(loader_class, num_workers):
    loader = loader_class(Squares(2), batch_size=2, pin_memory=True, num_workers=num_workers)
    with pytest.warns(UserWarning, match="no accelerator is found"):
        (batch,) = list(loader)
    assert_same(batch, next(iter(torch.utils.data.DataLoader(Squares(2), batch_size=2))))
    assert not batch[0].is_pinned()


def test_a_device_for_pinning_is_warned_about(loader_class):
    loader = loader_class(Ints(2), pin_memory=True, pin_memory_device="cuda", num_workers=1)
    with (
        pytest.warns(UserWarning, match="pin_memory_device is deprecated"),
        pytest.warns(UserWarning, match="no accelerator is found"),
    ):
        list(loader)


def test_the_pin_method_of_a_batch_is_not_called_without_an_accelerator(loader_class):
    loader = loader_class([0], num_workers=1, pin_memory=True, collate_fn=lambda batch: OwnBatch())
    with pytest.warns(UserWarning, match="no accelerator"):
        (batch,) = list(loader)
    assert batch == OwnBatch()
    assert batch.pinned == 0
