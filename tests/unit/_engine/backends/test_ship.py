"""A job into its cargo and out again, in this process."""

from __future__ import annotations

import gc
import io
import multiprocessing
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock._arena import packing, sharing
from penstock._arena.packing import PackedList
from penstock._arena.segment import Segment
from penstock._base import host
from penstock._engine.backends import ship
from penstock.errors import ArenaError, ShippingError

from .jobs import map_job


class Dataset:
    def __init__(self, **parts):
        self.__dict__.update(parts)


def shipped(dataset, **changes):
    """The job that arrives."""
    cargo = ship.pack(replace(map_job(), dataset=dataset, **changes))
    fds = [os.dup(fd) for fd in cargo.fds]
    cargo.close()
    return ship.unpack(cargo.manifest, fds)


def refusal(dataset):
    with pytest.raises(ShippingError) as caught:
        ship.pack(map_job(dataset))
    return str(caught.value)


# ---- what can go --------------------------------------------------------------------------------


def test_a_job_arrives():
    job = shipped([1, 2], workers=3, base_seed=5)
    assert (job.dataset, job.workers, job.base_seed, job.collate_fn) == ([1, 2], 3, 5, list)


TENSORS = {
    "matrix": torch.arange(6.0).view(2, 3),
    "scalar": torch.tensor(3),
    "empty": torch.zeros(0),
    "bool": torch.tensor([True]),
    "transposed": torch.arange(6).view(2, 3).t(),
    "bfloat16": torch.ones(2, dtype=torch.bfloat16),
    "leaf": torch.ones(2, requires_grad=True),
    "sparse": torch.eye(3).to_sparse(),
    "complex": torch.tensor([1 + 2j]),
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
def test_a_tensor_arrives(tensor):
    got = shipped(tensor).dataset
    assert (got.dtype, got.shape, got.requires_grad, got.layout) == (
        tensor.dtype,
        tensor.shape,
        tensor.requires_grad,
        tensor.layout,
    )
    assert torch.equal(got.to_dense(), tensor.to_dense())


def test_a_lazily_conjugated_tensor_arrives():
    assert shipped(torch.tensor([1 + 2j]).conj()).dataset.tolist() == [1 - 2j]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(10.0),
        np.asfortranarray(np.ones((2, 3))),
        np.array(["a", "b"]),
    ],
    ids=["numbers", "fortran", "texts"],
)
def test_an_array_arrives(array):
    got = shipped(Dataset(x=array)).dataset.x
    assert got.dtype == array.dtype
    assert np.array_equal(got, array)


def test_arrays_that_arrived_can_be_written():
    array = np.arange(10)
    got = shipped(array).dataset
    got[0] = 99
    assert array[0] == 0


def test_what_has_no_name_arrives():
    class Local:
        def __init__(self):
            self.transform = lambda x: x + 1

    assert shipped(Local()).dataset.transform(1) == 2


def test_buffers_are_aligned():
    arrays = [np.arange(size, dtype=np.uint8) for size in (3, 100, 7)]
    cargo = ship.pack(map_job(arrays))
    assert [offset % 64 for _, offset, _ in cargo.manifest.buffers] == [0, 0, 0]
    cargo.close()


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock, threading.local])
def test_what_guards_the_threads_of_a_process_starts_anew(make):
    guard = make()
    if hasattr(guard, "acquire"):
        guard.acquire()
    else:
        guard.x = 1
    got = shipped(Dataset(guard=guard)).dataset.guard
    assert type(got) is type(guard)
    assert not hasattr(got, "x")
    if hasattr(got, "acquire"):
        assert got.acquire(blocking=False)


def test_a_connection_arrives_with_its_descriptor():
    one, other = multiprocessing.Pipe()
    arrived = shipped(other).dataset
    arrived.send("hello")
    assert one.recv() == "hello"
    for end in (one, other, arrived):
        end.close()


def test_where_the_program_runs_is_part_of_the_cargo():
    cargo = ship.pack(map_job())
    manifest = cargo.manifest
    cargo.close()
    assert manifest.path == tuple(sys.path)
    assert manifest.argv == tuple(sys.argv)
    assert manifest.directory == str(Path.cwd())


def test_descriptors_are_closed_on_arrival():
    cargo = ship.pack(map_job())
    fds = [os.dup(fd) for fd in cargo.fds]
    cargo.close()
    ship.unpack(cargo.manifest, fds)
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


# ---- files --------------------------------------------------------------------------------------


def mapped_file(folder):
    """A memory-mapped file of numbers."""
    path = folder / "numbers"
    np.arange(1000).tofile(path)
    return np.memmap(path, np.int64, "r")


def test_a_mapped_file_is_opened_again(tmp_path):
    mapped = mapped_file(tmp_path)
    cargo = ship.pack(map_job(mapped))
    assert cargo.manifest.buffers == ()
    job = ship.unpack(cargo.manifest, [os.dup(fd) for fd in cargo.fds])
    cargo.close()
    assert type(job.dataset) is np.memmap
    assert job.dataset.filename == mapped.filename
    assert job.dataset[999] == 999


def test_a_slice_of_a_mapped_file_arrives_as_it_is(tmp_path):
    got = shipped(mapped_file(tmp_path)[10:20]).dataset
    assert got.tolist() == list(range(10, 20))


def test_a_mapped_file_that_is_gone_is_copied(tmp_path):
    mapped = mapped_file(tmp_path)
    Path(mapped.filename).unlink()
    assert shipped(mapped).dataset[999] == 999


# ---- packed lists -------------------------------------------------------------------------------


def test_a_packed_list_arrives_in_the_place_of_the_original(monkeypatch):
    monkeypatch.setattr(packing, "LARGE", 4)
    dataset = Dataset(files=list("abcd"), short=["a"])
    job = shipped(dataset, packed=packing.pack_large(dataset, {}))
    assert type(job.dataset.files) is PackedList
    assert job.dataset.files == list("abcd")
    assert job.dataset.short == ["a"]
    assert job.packed == {}


# ---- large arrays -------------------------------------------------------------------------------


@pytest.fixture
def nothing_moved(monkeypatch):
    monkeypatch.setattr(sharing, "SMALLEST", 32 << 20)
    monkeypatch.setattr(sharing, "_moved", {})


def pages():
    """An array on pages of its own: see tests/unit/_arena/test_sharing.py."""
    return np.arange((33 << 20) // 8)


@pytest.mark.usefixtures("nothing_moved")
def test_a_large_array_goes_on_a_segment_of_its_own():
    array = pages()
    cargo = ship.pack(map_job(Dataset(small=np.arange(3), large=array)))
    assert [which for which, _, _ in cargo.manifest.buffers] == [0, 1]
    assert len(cargo.fds) == len(cargo.manifest.sizes) == 2
    job = ship.unpack(cargo.manifest, [os.dup(fd) for fd in cargo.fds])
    cargo.close()
    assert np.array_equal(job.dataset.large, array)


@pytest.mark.usefixtures("nothing_moved")
def test_a_large_tensor_goes_on_a_segment_that_ends_with_it():
    tensor = torch.arange((33 << 20) // 8)
    cargo = ship.pack(map_job(tensor))
    cargo.close()
    fd = cargo.fds[1]
    os.fstat(fd)
    del tensor
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.usefixtures("nothing_moved")
def test_a_large_array_made_for_the_journey_arrives():
    class Fresh(Dataset):
        def __getstate__(self):
            return {"x": pages()}

    cargo = ship.pack(map_job(Fresh()))
    gc.collect()
    try:
        is_open = all(os.fstat(fd) for fd in cargo.fds)
    except OSError:
        is_open = False
    cargo.close()
    assert is_open


# ---- what cannot go -----------------------------------------------------------------------------


def test_what_cannot_go_is_named_by_its_path():
    assert refusal(Dataset(a=Dataset(rows=(x for x in ())))) == (
        "[PS503] the workers' start method ships the dataset to a fresh process, "
        "but `dataset.a.rows` is a generator\n"
        "  why:  TypeError: cannot pickle 'generator' object\n"
        "  fix:  open or build `dataset.a.rows` on first use in the worker or in `worker_init_fn`, "
        "or drop it in `__getstate__`; or pass multiprocessing_context='fork'\n"
        "  more: penstock explain PS503"
    )


def test_a_collate_function_that_cannot_go_is_named():
    rows = (x for x in ())
    with pytest.raises(ShippingError, match=r"`collate_fn \(its variable rows\)` is a generator"):
        ship.pack(map_job(collate_fn=lambda samples: rows))


def test_an_open_file_cannot_go(tmp_path):
    with (tmp_path / "x").open("w") as file:
        assert "`dataset.file` is a TextIOWrapper" in refusal(Dataset(file=file))


def test_a_tensor_that_is_not_in_memory_cannot_go():
    with pytest.raises(TypeError, match="cannot ship a tensor on xpu:0"):
        ship._reduce_tensor(type("T", (), {"device": torch.device("xpu:0")})(), {})


def test_a_refusal_of_our_own_is_passed_on():
    class Refuses(Dataset):
        def __reduce__(self):
            raise ShippingError("PS503", "my own words")

    with pytest.raises(ShippingError, match="my own words"):
        ship.pack(map_job(Refuses()))


def test_a_job_that_fails_only_as_a_whole_is_refused():
    class Moody:
        calls = 0

        def __reduce__(self):
            Moody.calls += 1
            if Moody.calls == 1:
                raise RuntimeError("not today")
            return (int, ())

    assert refusal(Moody()).startswith(
        "[PS503] the workers' start method ships the dataset to a fresh process, "
        "but `job` cannot be pickled\n"
    )


def test_a_refused_job_leaves_no_descriptor():
    before = set(Path("/proc/self/fd").iterdir())
    refusal(x for x in ())
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_cargo_that_could_not_be_loaded_leaves_no_descriptor(monkeypatch):
    made = []
    create = Segment.create
    monkeypatch.setattr(Segment, "create", lambda: made.append(create()) or made[0])
    monkeypatch.setattr(host, "memory_available", lambda: 0)
    with pytest.raises(ArenaError):
        ship.pack(map_job())
    is_open = made[0].fd >= 0
    made[0].close()
    assert not is_open


def test_a_skeleton_is_read_by_its_own_unpickler():
    stream = io.BytesIO()
    ship._shipper({})(stream).dump({"a": 1})
    stream.seek(0)
    assert ship._Unloader(stream).load() == {"a": 1}
