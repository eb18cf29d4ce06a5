"""Shared memory of the system: reserved before use, nameless, refused with numbers."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from penstock._arena import segment as module
from penstock._arena.segment import SPARE_BYTES, Segment
from penstock._base import host, libc
from penstock.errors import ArenaError

MIB = 1 << 20


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def array(mapping):
    return np.frombuffer(mapping.whole, np.uint8)


def failing(number):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    return fail


def addresses():
    return Path("/proc/self/maps").read_text()


# ---- room ---------------------------------------------------------------------------------------


def test_a_new_segment_is_empty(segment):
    assert segment.nbytes == 0
    assert os.fstat(segment.fd).st_size == 0


def test_reserved_room_has_pages_behind_it(segment):
    segment.reserve(100_000)
    assert segment.nbytes == os.fstat(segment.fd).st_size == 100_000
    assert os.fstat(segment.fd).st_blocks * 512 >= 100_000


def test_room_that_is_there_is_not_reserved_again(segment, monkeypatch):
    segment.reserve(5000)
    monkeypatch.setattr(os, "posix_fallocate", failing(errno.EIO))
    segment.reserve(5000)
    segment.reserve(10)
    assert segment.nbytes == 5000


def test_growing_keeps_the_bytes(segment):
    segment.reserve(10)
    os.pwrite(segment.fd, b"kept", 0)
    segment.reserve(10_000)
    assert os.pread(segment.fd, 4, 0) == b"kept"


def test_room_can_be_reserved_at_creation():
    segment = Segment.create(4096)
    assert os.fstat(segment.fd).st_size == 4096
    segment.close()


def test_a_system_without_fallocate_extends_the_segment(segment, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    segment.reserve(777)
    assert segment.nbytes == os.fstat(segment.fd).st_size == 777


def test_a_batch_larger_than_the_free_memory_is_refused_with_numbers(segment, monkeypatch):
    monkeypatch.setattr(host, "memory_available", lambda: SPARE_BYTES + 3 * MIB)
    with pytest.raises(ArenaError) as caught:
        segment.reserve(8 * MIB)
    assert str(caught.value) == (
        "[PS701] a batch needs 8.0 MiB more shared memory than the loader holds, "
        "but only 3.0 MiB of memory are left\n"
        "  why:  that is what the machine has available, or what the memory cgroup still allows, "
        "less 16 MiB for the processes themselves\n"
        "  fix:  lower `batch_size`, `num_workers` or `prefetch_factor`, or raise the memory limit\n"
        "  more: penstock explain PS701"
    )


def test_only_what_is_missing_counts_as_needed(segment, monkeypatch):
    segment.reserve(2 * MIB)
    monkeypatch.setattr(host, "memory_available", lambda: SPARE_BYTES + MIB)
    segment.reserve(3 * MIB)
    assert segment.nbytes == 3 * MIB


@pytest.mark.parametrize(("available", "left"), [(0, 0), (SPARE_BYTES, 0), (SPARE_BYTES + 1, 1)])
def test_batches_leave_some_memory_to_the_processes(monkeypatch, available, left):
    monkeypatch.setattr(host, "memory_available", lambda: available)
    assert module.memory_left() == left


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOMEM])
def test_a_system_without_room_is_told_with_numbers(segment, monkeypatch, number):
    monkeypatch.setattr(host, "memory_available", lambda: SPARE_BYTES + 64 * MIB)
    monkeypatch.setattr(os, "posix_fallocate", failing(number))
    with pytest.raises(ArenaError, match=r"\[PS701\] a batch needs 1\.0 MiB .* only 64\.0 MiB"):
        segment.reserve(MIB)


def test_a_refused_reservation_changes_nothing(segment, monkeypatch):
    segment.reserve(100)
    monkeypatch.setattr(os, "posix_fallocate", failing(errno.ENOSPC))
    with pytest.raises(ArenaError):
        segment.reserve(200)
    assert segment.nbytes == 100


def test_any_other_refusal_is_passed_on(segment, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", failing(errno.EPERM))
    with pytest.raises(ArenaError) as caught:
        segment.reserve(4096)
    assert str(caught.value) == (
        "[PS702] the system refused to reserve 4096 bytes of shared memory\n"
        "  why:  [Errno 1] Operation not permitted\n"
        "  fix:  see `penstock explain PS702` for the limits that matter\n"
        "  more: penstock explain PS702"
    )


def test_a_creation_that_finds_no_room_leaves_no_descriptor(monkeypatch):
    opened = []
    monkeypatch.setattr(module, "_open", lambda: opened.append(os.memfd_create("test")) or opened[0])
    monkeypatch.setattr(host, "memory_available", lambda: 0)
    with pytest.raises(ArenaError):
        Segment.create(1)
    assert not is_open(opened[0])


# ---- descriptors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "why", "fix"),
    [
        (
            errno.EMFILE,
            "[Errno 24] Too many open files",
            "raise the limit of open files (`ulimit -n`), or keep fewer open",
        ),
        (
            errno.ENFILE,
            "[Errno 23] Too many open files in system",
            "the whole system is out of file descriptors: raise `fs.file-max`",
        ),
        (
            errno.EACCES,
            "[Errno 13] Permission denied",
            "see `penstock explain PS702` for the limits that matter",
        ),
    ],
)
def test_a_refused_descriptor_names_the_limit(monkeypatch, number, why, fix):
    monkeypatch.setattr(module, "_open", failing(number))
    with pytest.raises(ArenaError) as caught:
        Segment.create()
    assert str(caught.value) == (
        "[PS702] the system refused to create shared memory for batches\n"
        f"  why:  {why}\n"
        f"  fix:  {fix}\n"
        "  more: penstock explain PS702"
    )


def test_a_descriptor_is_not_inherited_over_exec(segment):
    assert not os.get_inheritable(segment.fd)


def test_closing_twice_is_closing_once(segment):
    fd = segment.fd
    segment.close()
    segment.close()
    assert segment.fd == -1
    assert not is_open(fd)


@pytest.mark.parametrize("opener", [module._open, module._open_posix])
def test_a_segment_leaves_no_name(opener):
    before = set(Path("/dev/shm").iterdir())
    fd = opener()
    os.ftruncate(fd, 10)
    assert set(Path("/dev/shm").iterdir()) == before
    assert os.fstat(fd).st_size == 10
    os.close(fd)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_where_memfd_is_forbidden_there_is_a_posix_object(monkeypatch, number):
    monkeypatch.setattr(os, "memfd_create", failing(number))
    segment = Segment.create(100)
    assert array(segment.map()).size == 100
    segment.close()


def test_without_memfd_there_is_a_posix_object(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    segment = Segment.create(100)
    assert array(segment.map()).size == 100
    segment.close()


# ---- mappings -----------------------------------------------------------------------------------


def test_two_shared_mappings_show_the_same_bytes(segment):
    segment.reserve(100)
    one, other = array(segment.map()), array(segment.map())
    one[7] = 42
    assert other[7] == 42


def test_a_private_mapping_keeps_its_writes_to_itself(segment):
    segment.reserve(100)
    shared, private = array(segment.map()), array(segment.map(private=True))
    private[7] = 42
    assert shared[7] == 0


def test_a_private_mapping_shows_what_was_there(segment):
    segment.reserve(100)
    array(segment.map())[:] = 9
    assert array(segment.map(private=True)).tolist() == [9] * 100


def test_a_private_mapping_is_not_populated(segment, monkeypatch):
    seen = []
    real = libc.mmap
    monkeypatch.setattr(libc, "mmap", lambda fd, n, flags: seen.append(flags) or real(fd, n, flags))
    segment.reserve(10)
    segment.map(), segment.map(private=True)
    assert [bool(flags & libc.MAP_POPULATE) for flags in seen] == [True, False]


def test_a_mapping_outlives_its_descriptor(segment):
    segment.reserve(10)
    view = array(segment.map())
    segment.close()
    view[3] = 1
    assert view.tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]


def test_addresses_are_given_back_when_the_last_view_is_gone(segment, without_collector):
    segment.reserve(10)
    mapping = segment.map()
    view = array(mapping)[3:5]
    start = f"{mapping.address:x}-"
    del mapping
    assert start in addresses()
    del view
    assert start not in addresses()


def test_a_refused_mapping_names_the_limit(segment, monkeypatch):
    segment.reserve(10)

    def fail(*_):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(libc, "mmap", fail)
    with pytest.raises(ArenaError) as caught:
        segment.map()
    assert str(caught.value) == (
        "[PS702] the system refused to map 10 bytes of shared memory\n"
        "  why:  [Errno 12] Cannot allocate memory\n"
        "  fix:  raise `vm.max_map_count` or the address-space limit (`ulimit -v`)\n"
        "  more: penstock explain PS702"
    )


def test_a_refusal_can_be_sent_home(monkeypatch):
    monkeypatch.setattr(module, "_open", failing(errno.EMFILE))
    with pytest.raises(ArenaError) as caught:
        Segment.create()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
