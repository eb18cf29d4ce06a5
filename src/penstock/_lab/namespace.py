"""What the warden asks of the kernel, for itself and for the patient. Linux; the numbers are the C ones.

A private /dev/shm is a tmpfs of the wanted size in a mount namespace of the patient's own: nothing outside
sees it, and it is gone with the last process that was in it.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 0x4000, 1 << 18

SHM = "/dev/shm"  # noqa: S108 - the mount itself, not a file in it


class NotPossibleError(Exception):
    """The kernel or the rights of this user do not allow it; the text says which."""


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def private_shm(nbytes: int) -> None:
    """Give this process, and those that it will start, a /dev/shm of its own with so much room."""
    uid, gid = os.getuid(), os.getgid()
    try:
        _call("unshare", _CLONE_NEWNS)
    except OSError:
        _own_user_namespace(uid, gid)
    try:
        _mount(None, "/", None, _MS_REC | _MS_PRIVATE, "")  # else the mount would show outside
        _mount("tmpfs", SHM, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={nbytes},mode=1777")
    except OSError as error:
        raise NotPossibleError(f"a private /dev/shm could not be mounted: {error.strerror}") from error


def _own_user_namespace(uid: int, gid: int) -> None:
    try:
        _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError as error:
        raise NotPossibleError(f"this user may not have a mount namespace: {error.strerror}") from error


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str) -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind)]
    _call("mount", *words, ctypes.c_ulong(flags), options.encode() or None)


def _call(name: str, *arguments: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
