"""Never wrong data: what was delivered is right, and stays right for as long as anybody can see it."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import pickle
import queue
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, default_collate

from penstock import DataLoader

from .datasets import SIDE, Pictures, Stream, is_right, picture

pytestmark = pytest.mark.timeout(60)

BUDGETS = [None, 1, 1 << 20]  # all kept in place; nothing kept in place; a few


def assert_right(batches, size, count=None):
    wrong = [n for n, batch in enumerate(batches) if not is_right(batch, range(size * n, size * n + size))]
    assert not wrong
    if count is not None:
        assert len(batches) == count


# ---- kept ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("arena_bytes", BUDGETS)
def test_batches_kept_far_past_the_budget_stay_right(arena_bytes):
    loader = DataLoader(Pictures(96), batch_size=2, num_workers=2, arena_bytes=arena_bytes)
    assert_right(list(loader), 2, 48)


def test_more_kept_batches_than_the_arena_ever_holds_stay_right():
    assert_right(list(DataLoader(Pictures(150), batch_size=1, num_workers=2)), 1, 150)


@pytest.mark.parametrize("arena_bytes", BUDGETS)
def test_batches_of_several_epochs_kept_together_stay_right(arena_bytes):
    loader = DataLoader(Pictures(16), batch_size=4, num_workers=2, arena_bytes=arena_bytes)
    epochs = [list(loader) for _ in range(4)]
    for batches in epochs:
        assert_right(batches, 4, 4)


@pytest.mark.parametrize("persistent", [False, True])
def test_batches_of_abandoned_epochs_stay_right(persistent):
    loader = DataLoader(Pictures(64), batch_size=2, num_workers=2, persistent_workers=persistent)
    kept = []
    for _ in range(6):
        for number, batch in enumerate(loader):
            kept.append((number, batch))
            if number == 2:
                break
    assert all(is_right(batch, (2 * n, 2 * n + 1)) for n, batch in kept)


def test_batches_outlive_their_loader_and_its_workers():
    loader = DataLoader(Pictures(16), batch_size=4, num_workers=2)
    iterator = iter(loader)
    kept = [next(iterator), next(iterator)]
    del iterator
    gc.collect()
    assert_right(kept, 4)
    assert_right(list(loader), 4)
    del loader
    gc.collect()
    assert_right(kept, 4)


def test_the_next_batch_may_be_read_before_the_last_one_is_used():
    # As Accelerate does, to know which one is the last.
    iterator = iter(DataLoader(Pictures(40), batch_size=2, num_workers=2))
    current, number = next(iterator), 0
    for following in iterator:
        assert is_right(current, (2 * number, 2 * number + 1))
        current, number = following, number + 1
    assert is_right(current, (38, 39))


def test_a_slow_consumer_gets_the_same():
    for number, batch in enumerate(DataLoader(Pictures(16), batch_size=2, num_workers=2, prefetch_factor=4)):
        time.sleep(0.01)
        assert is_right(batch, (2 * number, 2 * number + 1))
    assert number == 7


@pytest.mark.parametrize("arena_bytes", [1, 1 << 20])
def test_a_window_of_batches_over_a_small_budget_is_never_stuck(arena_bytes):
    window = []
    loader = DataLoader(Pictures(80), batch_size=2, num_workers=2, arena_bytes=arena_bytes)
    for number, batch in enumerate(loader):
        window = [*window[-6:], (number, batch)]
        assert all(is_right(old, (2 * n, 2 * n + 1)) for n, old in window)
    assert number == 39


def test_streams_with_persistent_workers_and_a_small_budget_are_never_stuck():
    loader = DataLoader(
        BigStream(6), batch_size=1, num_workers=2, persistent_workers=True, prefetch_factor=4, arena_bytes=1
    )
    for _ in range(4):
        kept = list(loader)
        assert len(kept) == 12
    del loader


class BigStream(Stream):
    def __iter__(self):
        return (picture(number) for number in Stream.__iter__(self))


# ---- views --------------------------------------------------------------------------------------


VIEWS = {
    "a slice": (lambda batch: batch[1:], lambda expected: expected[1:]),
    "a row": (lambda batch: batch[0, 3], lambda expected: expected[0, 3]),
    "a transpose": (lambda batch: batch.transpose(1, 2), lambda expected: expected.transpose(1, 2)),
    "a numpy view": (lambda batch: batch.numpy(), lambda expected: expected.numpy()),
    "a memoryview": (lambda batch: memoryview(batch.numpy()), lambda expected: expected.numpy()),
    "bytes seen through dlpack": (np.from_dlpack, lambda expected: expected.numpy()),
    "a detached alias": (lambda batch: batch.detach(), lambda expected: expected),
    "its storage": (
        lambda batch: batch.untyped_storage(),
        lambda expected: expected.untyped_storage(),
    ),
    "an autograd graph": (
        lambda batch: (batch * torch.ones(1, requires_grad=True)).grad_fn,
        lambda expected: None,
    ),
}


@pytest.mark.parametrize(("view", "expect"), VIEWS.values(), ids=VIEWS)
def test_what_is_left_of_a_dropped_batch_stays_right(view, expect):
    kept = []
    for batch in DataLoader(Pictures(48), batch_size=2, num_workers=1, prefetch_factor=1):
        if len(kept) < 2:  # they stay while the memory of the others goes round
            kept.append(view(batch))
        del batch
    for number in range(2):
        expected = expect(torch.stack([picture(2 * number), picture(2 * number + 1)]))
        if expected is None:
            assert torch.equal(
                kept[number]._saved_self, torch.stack([picture(2 * number), picture(2 * number + 1)])
            )
        elif isinstance(kept[number], torch.Tensor):
            assert torch.equal(kept[number], expected)
        elif isinstance(kept[number], torch.UntypedStorage):
            assert torch.equal(torch.ByteTensor().set_(kept[number]), torch.ByteTensor().set_(expected))
        else:
            assert np.array_equal(np.asarray(kept[number]), expected)


def test_one_field_of_a_batch_keeps_only_itself_right():
    class Fields(Pictures):
        def __getitem__(self, index):
            return {"image": picture(index), "same": picture(index + 1), "array": picture(index + 2).numpy()}

    kept = []
    for batch in DataLoader(Fields(48), batch_size=2, num_workers=2):
        kept.append(batch["array"])
    for number, array in enumerate(kept):
        assert is_right(array, (2 * number + 2, 2 * number + 3))


def test_what_the_consumer_writes_into_a_batch_stays_and_spreads_nowhere():
    kept = []
    for number, batch in enumerate(DataLoader(Pictures(64), batch_size=2, num_workers=2)):
        assert is_right(batch, (2 * number, 2 * number + 1))
        kept.append(batch.mul_(0).add_(number))
    for number, batch in enumerate(kept):
        assert torch.equal(batch, torch.full((2, SIDE, SIDE), float(number)))


def test_what_the_consumer_writes_into_an_array_stays_and_spreads_nowhere():
    class Arrays(Pictures):
        def __getitem__(self, index):
            return picture(index).numpy()

    kept = []
    for number, batch in enumerate(DataLoader(Arrays(32), batch_size=None, num_workers=2)):
        assert np.array_equal(batch, picture(number).numpy())
        batch[:] = number
        kept.append(batch)
    assert all((batch == number).all() for number, batch in enumerate(kept))


# ---- what workers keep --------------------------------------------------------------------------


class MixesWithTheLast:
    """A collate function that remembers its last batch and returns both."""

    def __init__(self, keep=lambda batch: batch):
        self.last, self.keep = None, keep

    def __call__(self, samples):
        batch = default_collate(samples)
        last, self.last = self.last, self.keep(batch)
        return batch, batch if last is None else last


@pytest.mark.parametrize("arena_bytes", BUDGETS)
def test_a_collate_function_may_remember_its_last_batch(arena_bytes):
    loader = DataLoader(
        Pictures(48), batch_size=2, num_workers=1, collate_fn=MixesWithTheLast(), arena_bytes=arena_bytes
    )
    for number, (batch, last) in enumerate(loader):
        before = max(0, number - 1)
        assert is_right(batch, (2 * number, 2 * number + 1))
        assert is_right(last, (2 * before, 2 * before + 1)), number


def test_a_collate_function_may_remember_a_view_of_its_last_batch():
    loader = DataLoader(
        Pictures(48),
        batch_size=2,
        num_workers=1,
        collate_fn=MixesWithTheLast(lambda batch: batch[1:].numpy()),
    )
    for number, (_, last) in enumerate(loader):
        if number:
            assert np.array_equal(last[0], picture(2 * number - 1).numpy())


def test_a_collate_function_may_remember_all_its_batches():
    class Remembers:
        def __init__(self):
            self.all = []

        def __call__(self, samples):
            self.all.append(default_collate(samples))
            return torch.stack([batch.sum((1, 2)) for batch in self.all]), self.all[0]

    sums = [float(picture(index).sum()) for index in range(24)]
    loader = DataLoader(Pictures(24), batch_size=1, num_workers=1, collate_fn=Remembers())
    for number, (all_sums, first) in enumerate(loader):
        assert all_sums.flatten().tolist() == sums[: number + 1]
        assert is_right(first, [0])


def test_a_dataset_may_cache_batches_that_it_made_with_default_collate():
    class Caches(Dataset):
        def __init__(self):
            self.cache = {}

        def __len__(self):
            return 40

        def __getitem__(self, index):
            key = index % 4
            if key not in self.cache:
                self.cache[key] = default_collate([picture(key)])
            return self.cache[key]

    loader = DataLoader(Caches(), batch_size=None, num_workers=1, shuffle=False)
    for number, batch in enumerate(loader):
        assert is_right(batch, [number % 4]), number


class LooksAhead(IterableDataset):
    """Makes every batch one step before it is yielded."""

    def __iter__(self):
        ahead = default_collate([picture(0)])
        for number in range(1, 20):
            current, ahead = ahead, default_collate([picture(number)])
            yield current


def test_a_stream_may_make_its_batches_one_step_ahead():
    for number, batch in enumerate(DataLoader(LooksAhead(), batch_size=None, num_workers=1)):
        assert is_right(batch, [number])


class CarriesOver(IterableDataset):
    """Makes, at the end of an epoch, the first batch of the next."""

    last = None

    def __iter__(self):
        if self.last is not None:
            yield self.last
        for number in range(4):
            yield default_collate([picture(number)])
        self.last = default_collate([picture(777)])


def test_a_stream_may_keep_a_batch_for_the_next_epoch():
    loader = DataLoader(CarriesOver(), batch_size=None, num_workers=1, persistent_workers=True)
    assert_right(list(loader), 1, 4)
    for _ in range(4):
        first, *rest = list(loader)
        assert is_right(first, [777])
        assert_right(rest, 1, 4)
    del loader


def test_a_failed_batch_may_be_kept_by_the_exception_and_by_the_dataset():
    class Fails(Pictures):
        kept = ()

        def __getitem__(self, index):
            batch = default_collate([picture(index)])
            if index % 3 == 2:
                self.kept = (*self.kept, batch)
                raise ValueError(index)
            return batch, list(self.kept)

    iterator = iter(DataLoader(Fails(30), batch_size=None, num_workers=1))
    for index in range(30):
        if index % 3 == 2:
            with pytest.raises(ValueError):
                next(iterator)
            continue
        batch, kept = next(iterator)
        assert is_right(batch, [index])
        assert all(is_right(old, [3 * n + 2]) for n, old in enumerate(kept))


# ---- what datasets return -----------------------------------------------------------------------


class Reuses(Dataset):
    """Returns the same tensor every time, with other content."""

    def __init__(self):
        self.buffer = torch.empty(SIDE, SIDE)

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return self.buffer.copy_(picture(index))


def test_a_dataset_may_return_the_same_tensor_every_time():
    kept = list(DataLoader(Reuses(), batch_size=None, num_workers=2))
    assert all(torch.equal(batch, picture(number)) for number, batch in enumerate(kept))


def test_a_dataset_may_return_the_same_array_every_time():
    class ReusesArray(Reuses):
        def __getitem__(self, index):
            return super().__getitem__(index).numpy()

    kept = list(DataLoader(ReusesArray(), batch_size=None, num_workers=2))
    assert all(np.array_equal(batch, picture(number).numpy()) for number, batch in enumerate(kept))


@pytest.mark.parametrize("side", [4, 60, SIDE], ids=["tiny", "small", "large"])
def test_a_batch_of_a_dataset_that_reuses_its_tensor_is_what_torch_makes_of_it(side):
    class ReusesSome(Reuses):
        def __getitem__(self, index):
            return super().__getitem__(index)[:side, :side]

    stock = torch.utils.data.DataLoader(ReusesSome(), batch_size=4)
    for ours, theirs in zip(DataLoader(ReusesSome(), batch_size=4, num_workers=2), stock, strict=True):
        assert torch.equal(ours, theirs)


def test_samples_of_all_forms_are_collated_as_torch_does_it():  # noqa: C901 - a table
    class Forms(Dataset):
        def __init__(self, form):
            self.form = form

        def __len__(self):
            return 12

        def __getitem__(self, index):
            image = picture(index)
            return {
                "dict": {"image": image, "label": index, "mask": image > index},
                "tuple": (index, image, image.half(), "name"),
                "list": [image.numpy(), image.numpy().T, np.float64(index)],
                "nested": {"a": {"b": [image, (image + 1,)]}},
                "turned": image.t(),
                "read-only": np.broadcast_to(np.float32(index), (SIDE, SIDE)),
                "channels last": image.expand(3, SIDE, SIDE)
                .contiguous()[None]
                .to(memory_format=torch.channels_last)[0],
                "more keys": {"image": image, **({"late": image} if index else {"late": image + 1})},
                "same twice": (image, image),
                "a part of itself": (image, image[: SIDE // 2]),
            }[self.form]

    def equal(one, other):
        if isinstance(one, torch.Tensor):
            return type(one) is type(other) and one.dtype == other.dtype and torch.equal(one, other)
        if isinstance(one, dict):
            return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
        if isinstance(one, (list, tuple)):
            return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
        return one == other

    names = (
        "dict, tuple, list, nested, turned, read-only, channels last, more keys, same twice, a part of itself"
    )
    for form in names.split(", "):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of arrays that cannot be written to
            stock = list(torch.utils.data.DataLoader(Forms(form), batch_size=4))
            ours = list(DataLoader(Forms(form), batch_size=4, num_workers=1))
        assert equal(ours, stock), form


def test_samples_that_do_not_fit_fail_as_in_torch_and_the_next_batch_is_right():
    class Odd(Pictures):
        def __getitem__(self, index):
            return picture(index)[: SIDE - (index == 5)]

    iterator = iter(DataLoader(Odd(16), batch_size=4, num_workers=1))
    assert is_right(next(iterator), range(4))
    with pytest.raises(RuntimeError, match="sample index: 5"):
        next(iterator)
    assert is_right(next(iterator), range(8, 12))
    assert is_right(next(iterator), range(12, 16))


def test_a_dataset_that_remembers_its_samples_never_sees_them_change():
    class Remembers(Pictures):
        def __init__(self):
            super().__init__(48)
            self.images, self.arrays = [], []

        def __getitem__(self, index):
            self.images.append(picture(index))
            self.arrays.append(picture(index + 1).numpy())
            right = is_right(torch.stack(self.images), range(index + 1)) and is_right(
                torch.from_numpy(np.stack(self.arrays)), range(1, index + 2)
            )
            return self.images[-1], self.arrays[-1], not right

    for images, arrays, wrong in DataLoader(Remembers(), batch_size=4, num_workers=1):
        assert int(wrong.sum()) == 0
        images.zero_()
        arrays.zero_()


def test_samples_may_share_one_storage():
    whole = torch.arange(64 * SIDE * SIDE, dtype=torch.float32).view(64, SIDE, SIDE)

    class Views(Dataset):
        def __len__(self):
            return 32

        def __getitem__(self, index):
            return whole[index], whole[index + 1 : index + 3], whole[index].t()

    for number, (one, two, turned) in enumerate(DataLoader(Views(), batch_size=None, num_workers=2)):
        assert torch.equal(one, whole[number])
        assert torch.equal(two, whole[number + 1 : number + 3])
        assert torch.equal(turned, whole[number].t())
        assert one.untyped_storage().nbytes() == one.nbytes


def test_ragged_batches_that_grow_and_shrink_stay_right():
    class Ragged(Dataset):
        def __len__(self):
            return 60

        def __getitem__(self, index):
            return torch.full((1 + (index * 7919) % 200_000,), float(index))

    kept = list(DataLoader(Ragged(), batch_size=3, num_workers=2, collate_fn=list))
    for number, batch in enumerate(kept):
        for place, tensor in enumerate(batch):
            index = 3 * number + place
            assert tensor.shape == (1 + (index * 7919) % 200_000,)
            assert bool((tensor == index).all())


def test_in_place_collation_that_grows_its_memory_stays_right():
    # The first pieces are written before the memory is found to be too small.
    def collate(samples):
        first = default_collate(samples)
        return [first, *(default_collate(samples) + n for n in range(8)), first]

    for number, batches in enumerate(
        DataLoader(Pictures(24), batch_size=2, num_workers=2, collate_fn=collate)
    ):
        indices = (2 * number, 2 * number + 1)
        assert is_right(batches[0], indices)
        assert is_right(batches[-1], indices)
        assert all(is_right(batch - n, indices) for n, batch in enumerate(batches[1:-1]))


# ---- where batches go ---------------------------------------------------------------------------


def test_a_saved_batch_is_as_small_as_itself():
    class Two(Pictures):
        def __getitem__(self, index):
            return picture(index), index

    for images, labels in DataLoader(Two(32), batch_size=16, num_workers=1):
        saved = io.BytesIO()
        torch.save(labels, saved)
        assert saved.tell() < 4096
        assert labels.untyped_storage().nbytes() == labels.nbytes
        assert images.untyped_storage().nbytes() == images.nbytes
        saved.seek(0)
        assert torch.equal(torch.load(saved), labels)


def test_a_batch_can_be_copied_and_pickled():
    for number, batch in enumerate(DataLoader(Pictures(8), batch_size=2, num_workers=1)):
        indices = (2 * number, 2 * number + 1)
        for twin in (
            copy.copy(batch),
            copy.deepcopy(batch),
            pickle.loads(pickle.dumps(batch)),
            batch.clone(),
        ):
            assert is_right(twin, indices)


def test_a_batch_can_be_put_into_shared_memory():
    kept = []
    for batch in DataLoader(Pictures(16), batch_size=2, num_workers=2):
        kept.append(batch.share_memory_())
        assert batch.is_shared()
    assert_right(kept, 2, 8)


def test_a_batch_can_be_sent_to_another_process(stage):
    out = stage.run("""
        import torch.multiprocessing as multiprocessing
        context = multiprocessing.get_context("fork")
        def verify(inbox, outbox):
            for n in range(8):
                outbox.put(is_right(inbox.get(), range(2 * n, 2 * n + 2)))
        inbox, outbox = context.SimpleQueue(), context.SimpleQueue()
        process = context.Process(target=verify, args=(inbox, outbox))
        process.start()
        for batch in DataLoader(Pictures(16), batch_size=2, num_workers=2):
            inbox.put(batch)
        say([outbox.get() for _ in range(8)] == [True] * 8)
        process.join()
    """)
    assert out == "True\n"


def test_batches_can_be_handed_over_by_a_queue_of_threads():
    handed: queue.Queue = queue.Queue(maxsize=3)
    right = []

    def train():
        while (item := handed.get()) is not None:
            number, batch = item
            right.append(is_right(batch, (2 * number, 2 * number + 1)))

    thread = threading.Thread(target=train)
    thread.start()
    for item in enumerate(DataLoader(Pictures(48), batch_size=2, num_workers=2)):
        handed.put(item)
    handed.put(None)
    thread.join()
    assert right == [True] * 24


# ---- loaders as values --------------------------------------------------------------------------


COPIES = {
    "copied": copy.copy,
    "deeply copied": copy.deepcopy,
    "pickled": lambda loader: pickle.loads(pickle.dumps(loader)),
}


@pytest.mark.parametrize("twin", COPIES.values(), ids=COPIES)
def test_a_loader_that_has_run_can_be(twin):
    loader = DataLoader(Pictures(16), batch_size=4, num_workers=1)
    assert_right(list(loader), 4, 4)
    other = twin(loader)
    for number, batches in enumerate(zip(loader, other, strict=True)):
        assert all(is_right(batch, range(4 * number, 4 * number + 4)) for batch in batches)
    assert_right(list(loader), 4, 4)
    assert_right(list(other), 4, 4)


# ---- the budget ---------------------------------------------------------------------------------


def shared_bytes() -> int:
    """Memory that segments of ours in this process really take."""
    total = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if "memfd:penstock" in str(link.readlink()):
                total += link.stat().st_blocks * 512
    return total


def test_batches_in_flight_stay_within_the_budget():
    class Large(Pictures):
        def __getitem__(self, index):
            return torch.full((1 << 20,), float(index))  # 4 MiB

    iterator = iter(
        DataLoader(Large(32), batch_size=1, num_workers=2, prefetch_factor=8, arena_bytes=20 << 20)
    )
    most = 0
    for number, batch in enumerate(iterator):
        assert float(batch[0, 0]) == float(batch[0, -1]) == number
        if number == 1:
            time.sleep(0.5)  # until every worker has done all it was given
        most = max(most, shared_bytes())
    assert most <= 25 << 20, f"{most / 2**20:.0f} MiB"
