"""What a patient leaves outside of its processes: names in /dev/shm, sockets, temporary files.

A name is taken for the patient's only on evidence: it bears the pid of one of its processes, or one of them
has told that it made it, or had it mapped or open, and it was not there before.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock._lab.tree import slurp
from penstock._lab.vitals import shared_names

SHM = Path("/dev/shm")  # noqa: S108 - the mount itself

_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - where others make theirs
_SOCKET_HOMES = ("pymp-", "torch-shm-dir-", "torch-shm-file-")


def shm_names(folder: Path = SHM) -> frozenset[str]:
    """What is in /dev/shm."""
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 - names
    except OSError:
        return frozenset()


def stale(folder: Path = SHM) -> tuple[tuple[str, ...], int]:
    """Names in /dev/shm that bear the pid of a process that is no more, and how large they are together."""
    makers = {name: maker(name) for name in sorted(shm_names(folder))}
    dead = {pid for pid in makers.values() if pid is not None and not Path(f"/proc/{pid}").exists()}
    names = tuple(name for name, pid in makers.items() if pid in dead)
    return names, taken(names, folder)


def taken(names: Iterable[str], folder: Path = SHM) -> int:
    """Bytes of /dev/shm that they take."""
    nbytes = 0
    for name in names:
        with contextlib.suppress(OSError):
            nbytes += (folder / name).stat().st_blocks * 512
    return nbytes


def maker(name: str) -> int | None:
    """The pid that a name of torch's bears."""
    match = re.match(r"torch_(\d+)_", name)
    return int(match[1]) if match else None


def left_in_shm(
    before: frozenset[str], pids: Iterable[int], mapped: Iterable[str], folder: Path = SHM
) -> tuple[str, ...]:
    """Names that the patient has made and not removed."""
    known, seen = set(pids), set(mapped)
    new = shm_names(folder) - before
    return tuple(sorted(name for name in new if maker(name) in known or name in seen))


def orphaned(
    pids: Iterable[int], alive: Iterable[int], told: Mapping[str, int], folder: Path = SHM
) -> dict[str, int]:
    """Names of processes of the patient that are no more, and who made each; another may still hold some.

    `told` are names whose maker has told of them: others bear its pid.
    """
    gone = set(pids) - set(alive)
    makers = {name: told.get(name) or maker(name) for name in shm_names(folder)}
    return {name: pid for name, pid in makers.items() if pid in gone}


def remove_shm(names: Iterable[str], folder: Path = SHM) -> None:
    """Remove them."""
    for name in names:
        with contextlib.suppress(OSError):
            (folder / name).unlink()


def mapped_names(pids: Iterable[int]) -> set[str]:
    """Names in /dev/shm that any of these processes has mapped or open."""
    names: set[str] = set()
    for pid in pids:
        names |= shared_names(slurp(f"/proc/{pid}/maps", 16 << 20))
        names |= {text.removeprefix(f"{SHM}/") for text in _open_files(pid) if text.startswith(f"{SHM}/")}
    return {name for name in names if not name.endswith(" (deleted)")}


def socket_paths(pids: Iterable[int]) -> tuple[str, ...]:
    """Paths of sockets that these processes have bound."""
    inodes = {text for pid in pids for text in _open_files(pid) if text.startswith("socket:[")}
    found = []
    for line in slurp("/proc/net/unix").splitlines()[1:]:
        words = line.split(None, 7)
        if len(words) == 8 and words[7].startswith("/") and f"socket:[{words[6]}]" in inodes:  # noqa: PLR2004
            found.append(words[7])
    return tuple(found)


def remove_sockets(paths: Iterable[str]) -> None:
    """Remove sockets of multiprocessing and torch, with the directories that were made for them."""
    for path in map(Path, paths):
        if path.parent.name.startswith(_SOCKET_HOMES):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                path.parent.rmdir()


def remove_temporaries(paths: Iterable[str]) -> None:
    """Remove what the patient made with `tempfile` in a temporary directory; elsewhere it may be meant."""
    homes = {os.path.realpath(home) for home in (tempfile.gettempdir(), *_TEMPORARY)}
    for path in map(Path, paths):
        if os.path.realpath(path.parent) not in homes:
            continue
        with contextlib.suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def _open_files(pid: int) -> list[str]:
    folder = f"/proc/{pid}/fd"
    found = []
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names
    except OSError:
        return []
    for name in names[:4096]:
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"{folder}/{name}"))  # noqa: PTH115 - a string
    return found
