"""The raw calls: they map, they copy, they report errors as OSError."""

from __future__ import annotations

import ctypes
import errno
import os
import sys

import pytest

from penstock._base import libc


@pytest.fixture
def page():
    """A descriptor of one page."""
    fd = os.memfd_create("test")
    os.ftruncate(fd, libc.PAGE)
    yield fd
    os.close(fd)


def test_a_shared_mapping_writes_through(page):
    address = libc.mmap(page, libc.PAGE, libc.MAP_SHARED)
    ctypes.memset(address, 7, 3)
    libc.munmap(address, libc.PAGE)
    assert os.pread(page, 4, 0) == b"\7\7\7\0"


def test_a_private_mapping_keeps_its_writes(page):
    address = libc.mmap(page, libc.PAGE, libc.MAP_PRIVATE)
    ctypes.memset(address, 7, 3)
    libc.munmap(address, libc.PAGE)
    assert os.pread(page, 4, 0) == b"\0\0\0\0"


def test_a_mapping_can_start_at_an_offset(page):
    os.ftruncate(page, 2 * libc.PAGE)
    os.pwrite(page, b"second", libc.PAGE)
    address = libc.mmap(page, libc.PAGE, libc.MAP_SHARED, offset=libc.PAGE)
    text = ctypes.string_at(address, 6)
    libc.munmap(address, libc.PAGE)
    assert text == b"second"


def test_a_refused_mapping_is_an_error_with_its_number():
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        libc.mmap(-1, libc.PAGE, libc.MAP_SHARED)
    assert caught.value.errno == errno.EBADF


def test_bytes_are_copied_between_addresses():
    source, to = ctypes.create_string_buffer(b"abcd"), ctypes.create_string_buffer(5)
    libc.memmove(ctypes.addressof(to), ctypes.addressof(source), 3)
    assert to.value == b"abc"


@pytest.mark.parametrize(
    "call", [libc.die_with_parent, lambda: libc.name_process("x"), lambda: libc.keep_freed_memory(1)]
)
def test_what_only_linux_has_does_nothing_elsewhere(monkeypatch, call):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(libc, "_libc", lambda: pytest.fail("called"))
    call()


def test_the_name_of_a_process_is_cut_to_what_the_kernel_keeps(monkeypatch):
    told = []
    monkeypatch.setattr(
        libc, "_libc", lambda: type("C", (), {"prctl": staticmethod(lambda *a: told.append(a))})
    )
    libc.name_process("a-name-of-more-than-fifteen-bytes")
    assert told == [(15, b"a-name-of-more-")]


def test_malloc_is_told_to_keep_freed_memory(monkeypatch):
    told = []
    monkeypatch.setattr(
        libc, "_libc", lambda: type("C", (), {"mallopt": staticmethod(lambda *a: told.append(a))})
    )
    libc.keep_freed_memory(1 << 40)
    assert told == [(-3, 32 << 20), (-1, (1 << 31) - 1), (-2, 16 << 20)]


def test_a_libc_without_mallopt_is_left_alone(monkeypatch):
    monkeypatch.setattr(libc, "_libc", object)
    libc.keep_freed_memory(1)
