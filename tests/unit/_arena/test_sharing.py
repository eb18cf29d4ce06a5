"""Moving an array onto a segment changes where it lies, and nothing else."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import mmap
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock._arena import sharing
from penstock._arena.sharing import share
from penstock._base import libc

# malloc takes blocks above 32 MiB straight from the kernel, whatever was freed before.
NBYTES = 33 << 20


@pytest.fixture(autouse=True)
def nothing_moved(monkeypatch):
    """Begin with nothing moved; let what malloc takes from the kernel count as large."""
    monkeypatch.setattr(sharing, "SMALLEST", 32 << 20)
    monkeypatch.setattr(sharing, "STEP", 20 << 20)
    monkeypatch.setattr(sharing, "_moved", {})


def pages():
    """A large array of numbers that are all different."""
    return np.arange(NBYTES // 8)


def raw(array):
    return pickle.PickleBuffer(array).raw()


def content(berth):
    return os.pread(berth.segment.fd, berth.nbytes, berth.offset)


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


# ---- moving -------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 1, libc.PAGE // 8 - 2], ids=["whole", "cut", "cut at a page"])
def test_a_moved_array_is_unchanged(start):
    whole = pages()
    array = whole[start:]
    berth = share(raw(array), array)
    assert np.array_equal(whole, np.arange(NBYTES // 8))
    assert content(berth) == array.tobytes()


def test_a_moved_array_lies_on_the_segment():
    array = pages()
    berth = share(raw(array), array)
    first_page = -(-array.ctypes.data // libc.PAGE) * libc.PAGE
    with Path("/proc/self/maps").open() as maps:
        line = next(line for line in maps if line.startswith(f"{first_page:x}-"))
    assert "memfd:penstock" in line
    assert berth.nbytes == NBYTES


def test_numbers_beside_the_array_are_untouched():
    whole = pages()
    array = whole[100:-100]
    share(raw(array), array)
    assert np.array_equal(whole, np.arange(NBYTES // 8))


def test_the_owners_writes_stay_with_the_owner():
    array = pages()
    berth = share(raw(array), array)
    array[:] = 1
    assert content(berth) == np.arange(NBYTES // 8).tobytes()


def test_a_worker_writes_to_its_own_copy():
    array = pages()
    berth = share(raw(array), array)
    worker = np.frombuffer(berth.segment.map(private=True).whole, np.uint8)
    worker[berth.offset :] = 9
    assert array[1] == 1
    assert content(berth)[8] == 1


def test_nobody_can_write_to_the_segment():
    array = pages()
    berth = share(raw(array), array)
    with pytest.raises(PermissionError):
        os.pwrite(berth.segment.fd, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(berth.segment.fd, 0)
    assert fcntl.fcntl(berth.segment.fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE


def test_a_tensor_can_be_the_owner():
    tensor = torch.arange(NBYTES // 8)
    array = tensor.numpy()
    assert content(share(raw(array), tensor)) == array.tobytes()
    assert torch.equal(tensor, torch.arange(NBYTES // 8))


# ---- a second time ------------------------------------------------------------------------------


def test_a_second_shipping_reuses_the_segment():
    array = pages()
    first = share(raw(array), array)
    assert share(raw(array), array) is first


def test_changed_content_gets_a_new_segment():
    array = pages()
    first = share(raw(array), array)
    array[7] = 200
    second = share(raw(array), array)
    assert second is not first
    assert content(second)[56] == 200
    assert array[7] == 200


def test_another_length_at_the_same_address_gets_a_new_segment():
    array = pages()
    first = share(raw(array), array)
    part = array[:-100]
    second = share(raw(part), part)
    assert second is not first
    assert second.nbytes == NBYTES - 800


def test_the_segment_of_old_content_is_given_back():
    array = pages()
    first = share(raw(array), array)
    array[7] = 200
    share(raw(array), array)
    fd = first.segment.fd
    del array
    assert fd == -1


# ---- the end ------------------------------------------------------------------------------------


def test_memory_is_given_back_when_the_owner_dies():
    array = pages()
    berth = share(raw(array), array)
    fd = berth.segment.fd
    del array
    gc.collect()
    assert berth.segment.fd == -1
    assert not is_open(fd)
    assert sharing._moved == {}


def test_every_segment_is_given_back_when_the_owner_dies():
    array = pages()
    first = share(raw(array), array)
    array[0] = 99
    second = share(raw(array), array)
    del array
    gc.collect()
    assert [first.segment.fd, second.segment.fd] == [-1, -1]
    assert sharing._moved == {}


def test_a_view_outlives_the_owners_segment():
    array = pages()
    share(raw(array), array)
    view = array[10:20]
    del array
    gc.collect()
    assert view.tolist() == list(range(10, 20))


# ---- what is not moved --------------------------------------------------------------------------


def test_a_small_array_is_not_moved():
    array = np.zeros(100, np.uint8)
    assert share(raw(array), array) is None


def test_an_empty_array_is_not_moved():
    array = np.zeros(0)
    assert share(raw(array), array) is None


def test_an_array_that_cannot_be_written_is_not_moved():
    array = pages()
    array.flags.writeable = False
    assert share(raw(array), array) is None


@pytest.mark.parametrize("flags", [mmap.MAP_SHARED, mmap.MAP_PRIVATE])
def test_memory_that_is_not_of_malloc_is_not_moved(flags):
    # As RawArray, SharedMemory and np.memmap("r+") have it: others see it, or a file is behind it.
    array = np.frombuffer(mmap.mmap(-1, NBYTES, flags=flags | mmap.MAP_ANONYMOUS), np.uint8)
    is_moved = share(raw(array), array) is not None
    del array
    assert not is_moved


def test_a_tensor_on_memory_of_others_is_not_moved():
    tensor = torch.frombuffer(mmap.mmap(-1, NBYTES), dtype=torch.uint8)
    is_moved = share(raw(tensor.numpy()), tensor) is not None
    del tensor
    assert not is_moved


def test_an_owner_that_is_no_array_is_not_moved():
    array = pages()
    assert share(raw(array), object()) is None


def test_a_part_of_an_array_is_owned_by_the_whole():
    whole = pages()
    berth = share(raw(whole[1:]), whole[1:])
    gc.collect()
    assert berth.segment.fd >= 0
    del whole
    gc.collect()
    assert berth.segment.fd == -1


@pytest.mark.parametrize("name", ["mallctl", "tc_malloc", "mi_malloc"])
def test_nothing_is_moved_under_an_unknown_allocator(monkeypatch, name):
    monkeypatch.setattr(sharing.ctypes, "CDLL", lambda _: type("C", (), {name: None}))
    array = pages()
    assert share(raw(array), array) is None


def test_nothing_is_moved_on_other_systems(monkeypatch):
    array = pages()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert share(raw(array), array) is None


@pytest.mark.parametrize("is_pinned", [True, False])
def test_what_a_gpu_driver_has_pinned_is_not_moved(monkeypatch, is_pinned):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: is_pinned)
    array = pages()
    assert (share(raw(array), array) is None) is is_pinned


def test_a_refused_segment_leaves_the_array_where_it_is(monkeypatch):
    array = pages()
    monkeypatch.setattr(sharing.Segment, "create", lambda nbytes: (_ for _ in ()).throw(OSError("full")))
    with contextlib.suppress(OSError):
        share(raw(array), array)
    assert np.array_equal(array, np.arange(NBYTES // 8))
    assert sharing._moved == {}
