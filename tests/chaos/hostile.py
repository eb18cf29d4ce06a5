"""Hard conditions that a script puts itself into: a tiny /dev/shm, a read-only /tmp, a cgroup."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_REC, _MS_PRIVATE = 0x1, 0x4000, 0x40000
CGROUPS = Path("/sys/fs/cgroup")


def _mount(what: bytes, where: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(what, where, kind, flags, options) != 0:
        skip(f"mount is refused: {os.strerror(ctypes.get_errno())}")


def skip(why: str) -> None:
    """End the script: this machine does not allow the scenario."""
    print("skip", why, flush=True)
    sys.stdout.flush()
    os._exit(0)


def own_mounts() -> None:
    """Further mounts are seen by this process and its children alone."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        skip("unshare is refused")
    _mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE)


def small_shm(nbytes: int) -> None:
    """Put a file system of this size in the place of /dev/shm."""
    own_mounts()
    _mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=%d" % nbytes)


def read_only_tmp() -> None:
    """Nothing can be written to /tmp, /var/tmp or /dev/shm."""
    own_mounts()
    for place in (b"/tmp", b"/var/tmp", b"/dev/shm"):
        _mount(b"tmpfs", place, b"tmpfs", _MS_RDONLY)


class Cgroup:
    """A cgroup (v1) of the test's own, below the one that pytest runs in."""

    def __init__(self, controller: str, **limits: int) -> None:
        own = next(
            (line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines()
             if controller in line.split(":")[1].split(",")), None,
        )  # fmt: skip
        self.path = CGROUPS / controller / (own or "").lstrip("/") / f"chaos-{os.getpid()}"
        if own is None:
            raise OSError(f"no cgroup controller {controller} of version 1")
        self.path.mkdir()
        for name, value in limits.items():
            (self.path / f"{controller}.{name}").write_text(str(value))

    def remove(self) -> None:
        """Move what is left out, and remove it."""
        for pid in (self.path / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (self.path.parent / "cgroup.procs").write_text(pid)
        for below in self.path.iterdir():
            if below.is_dir():
                below.rmdir()
        self.path.rmdir()


def join(path: str) -> None:
    """Move this process into a cgroup."""
    (Path(path) / "cgroup.procs").write_text(str(os.getpid()))
