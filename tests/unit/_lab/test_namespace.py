"""What the kernel may refuse."""

from __future__ import annotations

import os

import pytest

from penstock._lab import namespace


def refuses(*names):
    def call(name, *_):
        if name in names:
            raise PermissionError(1, os.strerror(1))

    return call


def test_a_user_without_namespaces_is_told_so(monkeypatch):
    monkeypatch.setattr(namespace, "_call", refuses("unshare"))
    with pytest.raises(
        namespace.NotPossibleError, match="may not have a mount namespace: Operation not perm"
    ):
        namespace.private_shm(1 << 20)


def test_a_mount_that_fails_is_told(monkeypatch):
    monkeypatch.setattr(namespace, "_call", refuses("mount"))
    with pytest.raises(namespace.NotPossibleError, match="could not be mounted: Operation not permitted"):
        namespace.private_shm(1 << 20)


def test_an_error_of_the_kernel_is_an_oserror():
    with pytest.raises(OSError, match="Invalid argument"):
        namespace._call("prctl", 999999, 0, 0, 0, 0)
