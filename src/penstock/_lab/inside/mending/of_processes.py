"""Mends of processes and of the loop: threads, sockets, sharing, iterators."""

from __future__ import annotations

import os
import sys
from typing import Any, ClassVar

from penstock._lab.inside import kinds
from penstock._lab.inside.mending.mend import Mend
from penstock._lab.inside.walk import reachable

_TIMEOUT_S = 2.0


class NoRaiseThreads(Mend):
    """A worker cannot raise its number of threads above one."""

    name: ClassVar[str] = "no-raise-threads"

    def in_worker(self, dataset: Any) -> None:
        """Calls that would are left out."""
        del dataset
        torch: Any = sys.modules["torch"]
        torch.set_num_threads = _at_most_one(torch.set_num_threads)
        torch.set_num_interop_threads = lambda *_: None
        cv2: Any = sys.modules.get("cv2")
        if cv2 is not None:
            cv2.setNumThreads = _at_most_one(cv2.setNumThreads)


def _at_most_one(plain: Any) -> Any:
    def call(number: int) -> None:
        if 0 <= number <= 1:
            plain(number)

    return call


class OneThread(NoRaiseThreads):
    """Each library has one thread in a worker, and cannot get more."""

    name: ClassVar[str] = "one-thread"

    def in_process(self) -> None:
        """For workers that are not forked, and for what is imported later."""
        from penstock._engine.tame import ENVIRONMENT

        os.environ.update(ENVIRONMENT)

    def in_worker(self, dataset: Any) -> None:
        """The pools that are there."""
        from threadpoolctl import ThreadpoolController

        ThreadpoolController().limit(limits=1)
        cv2: Any = sys.modules.get("cv2")
        if cv2 is not None:
            cv2.setNumThreads(0)
        super().in_worker(dataset)


class SocketTimeout(Mend):
    """In a worker every socket, pipe and child process is waited for at most two seconds."""

    name: ClassVar[str] = "socket-timeout"

    def in_worker(self, dataset: Any) -> None:
        """New sockets, those on the dataset, subprocesses, connections of multiprocessing."""
        import socket

        socket.setdefaulttimeout(_TIMEOUT_S)
        for _, value, _ in reachable(dataset, "dataset"):
            if kinds.kind_of(value) == "socket" and hasattr(value, "settimeout"):
                value.settimeout(_TIMEOUT_S)
        _limit_children()
        _limit_connections()
        _limit_pipes()


def _limit_children() -> None:
    import subprocess

    for name in ("wait", "communicate"):
        plain = getattr(subprocess.Popen, name)
        setattr(subprocess.Popen, name, _with_timeout(plain))


def _with_timeout(plain: Any) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = _TIMEOUT_S
        return plain(self, *args, **kwargs)

    return call


def _limit_connections() -> None:
    from multiprocessing.connection import Connection

    plain = Connection.recv

    def recv(self: Any) -> Any:
        if not self.poll(_TIMEOUT_S):
            raise TimeoutError(f"nothing came within {_TIMEOUT_S:g} s")
        return plain(self)

    Connection.recv = recv  # type: ignore[method-assign]


def _limit_pipes() -> None:
    import select
    import stat

    plain = os.read

    def read(fd: int, size: int) -> bytes:
        mode = os.fstat(fd).st_mode
        waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        if waits and not select.select([fd], [], [], _TIMEOUT_S)[0]:
            raise TimeoutError(f"nothing came within {_TIMEOUT_S:g} s")
        return plain(fd, size)

    os.read = read


class ShareByDescriptor(Mend):
    """torch's sharing strategy stays "file_descriptor"."""

    name: ClassVar[str] = "share-by-descriptor"

    def in_process(self) -> None:
        """Whoever wants another is not heard."""
        shared: Any = sys.modules["torch.multiprocessing"]
        shared.set_sharing_strategy("file_descriptor")
        shared.set_sharing_strategy = lambda _: None


class ReuseIterator(Mend):
    """iter(loader), while an iterator of that loader or of one just like it has not ended, goes on."""

    name: ClassVar[str] = "reuse-iterator"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self._open: dict[tuple[Any, ...], Any] = {}

    def started(self, loader: Any, iterator: Any) -> None:
        """Hold on to it: `next(iter(loader))` would let it go."""
        self._open[_alike(loader)] = loader, iterator

    def reused(self, loader: Any) -> Any:
        """One that can go on."""
        _, iterator = self._open.get(_alike(loader), (None, None))
        seen = None if iterator is None else iterator.__dict__.get("_penstock_pass")
        if seen is None or seen.end:
            return None
        try:
            is_done = seen.batches >= len(loader)
        except TypeError:
            is_done = False
        if is_done:
            del self._open[_alike(loader)]
            return None
        return iterator


def _alike(loader: Any) -> tuple[Any, ...]:
    """What two loaders share of which the second could as well have been the first."""
    return id(loader.dataset), loader.batch_size, loader.num_workers, type(loader.sampler)


class ShortTempdir(Mend):
    """Sockets of multiprocessing lie in the folder of the argument, wherever the program wants them."""

    name: ClassVar[str] = "short-tempdir"

    def before_iter(self, loader: Any, number: int) -> None:
        """Before a worker is started, and before a batch opens the first socket."""
        import tempfile
        from multiprocessing import process

        del loader, number
        tempfile.tempdir = self.argument
        config: Any = getattr(process.current_process(), "_config", {})
        config.pop("tempdir", None)  # the folder that was made below the old one


class InnerWorkersZero(Mend):
    """Loaders that are made inside a worker get num_workers=0. See `Mends.settings`."""

    name: ClassVar[str] = "inner-workers-zero"


class EqualRanks(Mend):
    """Every pass ends after as many batches as PENSTOCK_MOST_BATCHES says. See `Mends.is_over`."""

    name: ClassVar[str] = "equal-ranks"

    @property
    def most(self) -> int | None:
        """Batches of a pass."""
        text = os.environ.get("PENSTOCK_MOST_BATCHES", "")
        return int(text) if text.isdigit() else None
