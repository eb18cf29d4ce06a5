"""Descriptors keep off the numbers of the standard streams."""

from __future__ import annotations

import os
import resource
import sys

import pytest

from penstock._base import descriptors


def test_the_limit_is_the_systems():
    assert descriptors.limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_no_limit_is_a_large_one(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert descriptors.limit() == sys.maxsize


def test_a_descriptor_above_the_streams_stays():
    read, write = os.pipe()
    assert (descriptors.lift(read), descriptors.lift(write)) == (read, write)
    os.close(read)
    os.close(write)


def test_a_descriptor_with_the_number_of_a_stream_gets_another(monkeypatch):
    read, write = os.pipe()
    os.close(write)
    monkeypatch.setattr(descriptors, "_STREAMS", read + 1)
    lifted = descriptors.lift(read)
    assert lifted > read
    assert not os.get_inheritable(lifted)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)
    os.close(lifted)


def test_closed_streams_are_filled_and_the_others_stay(monkeypatch):
    opened = iter([0, 2, 7])
    inheritable, closed = [], []
    monkeypatch.setattr(os, "open", lambda *_: next(opened))
    monkeypatch.setattr(os, "set_inheritable", lambda fd, _: inheritable.append(fd))
    monkeypatch.setattr(os, "close", closed.append)
    descriptors.fill_streams()
    assert (inheritable, closed) == ([0, 2], [7])
