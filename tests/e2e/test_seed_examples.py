"""The six programs that people ask about: with this loader each completes, or fails with one clear error."""

from __future__ import annotations

import multiprocessing
import random

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from penstock import DataLoader

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # four workers, as in the examples
]


# ---- "How do I resolve runtime errors related to num_workers?" -------------------------------------


def test_a_large_dataset_does_not_exhaust_shared_memory(stage):
    # As in a container: /dev/shm has 64 MB, and the batches in flight are several times that.
    out = stage.run("""
        import warnings; warnings.simplefilter("ignore")
        from tests.chaos.hostile import small_shm
        small_shm(64 << 20)
        class InMemory(torch.utils.data.Dataset):
            def __init__(self, size):
                self.data = np.random.rand(size, 512, 512).astype(np.float32)
            def __len__(self):
                return len(self.data)
            def __getitem__(self, index):
                return self.data[index]
        dataset = InMemory(100)
        for number, batch in enumerate(DataLoader(dataset, batch_size=10, num_workers=4)):
            assert np.array_equal(batch.numpy(), dataset.data[10 * number : 10 * number + 10])
        say("batches", number + 1)
    """)
    assert out.startswith("skip") or out == "batches 10\n"


class Scales(Dataset):
    """Its transform is a lambda, which pickle cannot send."""

    def __init__(self, size: int) -> None:
        self.data = list(range(size))
        self.transform = lambda value: value * random.random()

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> float:
        return self.transform(self.data[index])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_lambda_in_the_dataset_can_go_to_workers(method):
    batches = list(DataLoader(Scales(100), batch_size=10, num_workers=4, multiprocessing_context=method))
    assert [len(batch) for batch in batches] == [10] * 10
    values = torch.cat(batches)
    assert bool(((values >= 0) & (values <= torch.arange(100))).all())
    assert len(values.unique()) > 90


def test_a_library_with_threads_of_its_own_does_not_crash_workers():
    cv2 = pytest.importorskip("cv2", reason="the example uses OpenCV")

    class Images(Dataset):
        def __init__(self, size: int) -> None:
            self.data = [np.random.randint(0, 256, (100, 100, 3), np.uint8) for _ in range(size)]

        def __len__(self) -> int:
            return len(self.data)

        def __getitem__(self, index: int) -> np.ndarray:
            return cv2.cvtColor(self.data[index], cv2.COLOR_BGR2RGB)

    dataset = Images(100)
    cv2.resize(dataset.data[0], (512, 512))  # its threads exist before the fork
    for number, batch in enumerate(DataLoader(dataset, batch_size=10, num_workers=4)):
        expected = np.stack(dataset.data[10 * number : 10 * number + 10])[..., ::-1]
        assert np.array_equal(batch.numpy(), expected)
    assert number == 9


def test_a_torch_operation_with_threads_before_and_after_the_fork_does_not_hang(stage):
    # The same without OpenCV: torch's own pool is warm in the training process, and workers use torch.
    out = stage.run("""
        torch.set_num_threads(2)
        torch.rand(400, 400) @ torch.rand(400, 400)
        torch.rand(1 << 20).exp().sum()
        class Multiplies(torch.utils.data.Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                return (torch.ones(200, 200) @ torch.ones(200, 200)).add(index).exp().log()[0, 0]
        say(len(list(DataLoader(Multiplies(), batch_size=2, num_workers=2))))
    """)
    assert out == "4\n"


# ---- "Why does a PyTorch DataLoader freeze when using multiple workers?" ---------------------------


@pytest.fixture
def directory(tmp_path):
    """Twenty small files."""
    for number in range(20):
        (tmp_path / f"{number:02}.bin").write_bytes(bytes([number]) * (number + 1))
    return tmp_path


class Files(Dataset):
    """Reads a file per sample, as it should be: opened and closed by whoever reads it."""

    def __init__(self, directory, lock=None) -> None:
        self.paths = sorted(directory.iterdir())
        self.lock = lock

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> bytes:
        if self.lock is None:
            return self.paths[index].read_bytes()
        with self.lock:
            return self.paths[index].read_bytes()


def assert_read(batches) -> None:
    read = [data for batch in batches for data in batch]
    assert read == [bytes([number]) * (number + 1) for number in range(20)]


def test_files_that_several_workers_read_need_no_lock(directory):
    assert_read(DataLoader(Files(directory), batch_size=4, num_workers=4))


@pytest.mark.usefixtures("spawn_locks")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_lock_around_the_files_does_no_harm(directory, method):
    lock = multiprocessing.get_context(method).Lock()
    assert_read(
        DataLoader(Files(directory, lock), batch_size=4, num_workers=4, multiprocessing_context=method)
    )


class Divides(Dataset):
    """Fails at one sample: raises, or swallows the exception and returns None."""

    def __init__(self, *, swallows: bool) -> None:
        self.swallows = swallows

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int):
        try:
            return 1 / (index - 9)
        except ZeroDivisionError:
            if self.swallows:
                return None
            raise


def test_an_exception_in_a_worker_arrives_with_the_sample():
    batches = []
    with pytest.raises(ZeroDivisionError) as caught:
        batches.extend(DataLoader(Divides(swallows=False), batch_size=4, num_workers=4))
    assert "sample index: 9" in str(caught.value)
    assert "in __getitem__" in str(caught.value)


def test_none_in_the_place_of_a_sample_is_told_with_the_sample():
    with pytest.raises(TypeError) as caught:
        list(DataLoader(Divides(swallows=True), batch_size=4, num_workers=4))
    assert "NoneType" in str(caught.value)
    assert "sample index: 9" in str(caught.value)
