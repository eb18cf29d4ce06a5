"""Mends of threads that a fork does not copy, and of the clients that own them."""

from __future__ import annotations

import functools
import os
import sys
import threading
from types import FrameType
from typing import Any, ClassVar

from penstock._lab.inside.frames import is_user_code
from penstock._lab.inside.mending.mend import Mend, MendError
from penstock._lab.inside.walk import reachable

# Threads of multiprocessing and of torch: workers have, or need, their own.
_HOUSEKEEPING = ("QueueFeederThread", "QueueManagerThread", "resource_sharer", "pt_data_pin")


class RestartThreads(Mend):
    """Python threads that the program had at the fork are started once more in each worker.

    Each runs its function from the beginning. An event loop that ran in one gets descriptors of its own
    first: those of the parent would wake the parent.
    """

    name: ClassVar[str] = "restart-threads"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self._at_fork: list[threading.Thread] = []

    def in_process(self) -> None:
        """From now on, every fork is preceded by a look."""
        os.register_at_fork(before=self._remember)

    def _remember(self) -> None:
        self._at_fork = [each for each in threading.enumerate() if each is not threading.main_thread()]

    def in_worker(self, dataset: Any) -> None:
        """All of them again, and nobody notified in their place."""
        for _, value, _ in reachable(dataset, "dataset"):
            if isinstance(value, threading.Condition):
                value._waiters.clear()  # type: ignore[attr-defined]  # noqa: SLF001 - of threads that are gone
        lost = [each for each in self._at_fork if not each.name.startswith(_HOUSEKEEPING)]
        if not lost:
            raise MendError("the program had no other thread at the fork")
        for thread in lost:
            _renew(getattr(getattr(thread, "_target", None), "__self__", None))
            threading.Thread(target=thread.run, name=thread.name, daemon=True).start()


def _renew(loop: Any) -> None:
    """Own descriptors for an event loop of asyncio, where this is one."""
    import asyncio
    import selectors

    if isinstance(loop, asyncio.SelectorEventLoop):
        inside: Any = loop  # its private names, the same since Python 3.7
        inside._thread_id = None  # noqa: SLF001
        inside._selector = selectors.DefaultSelector()  # noqa: SLF001
        inside._make_self_pipe()  # noqa: SLF001


class RebuildClients(Mend):
    """Objects that started a thread or opened a connection when they were made are made again in each worker.

    Their `__init__` runs once more, with the arguments of the first time: what a dataset does that makes its
    client where it is first used.
    """

    name: ClassVar[str] = "rebuild-clients"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self._made: dict[int, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}

    def in_process(self) -> None:
        """From now on, whoever starts a thread or connects is remembered."""
        import socket

        for owner, name in ((threading.Thread, "start"), (socket.socket, "connect")):
            self._listen(owner, name)

    def _listen(self, owner: Any, name: str) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._remember(sys._getframe(1))  # noqa: SLF001 - of whoever calls
            return inner(*args, **kwargs)

        setattr(owner, name, call)

    def _remember(self, frame: FrameType | None) -> None:
        while frame is not None:
            code, values = frame.f_code, frame.f_locals
            if code.co_name == "__init__" and code.co_argcount and is_user_code(code.co_filename):
                names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
                owner, *positional = (values.get(name) for name in names[: code.co_argcount])
                keywords = {name: values.get(name) for name in names[code.co_argcount :]}
                self._made.setdefault(id(owner), (owner, tuple(positional), keywords))
            frame = frame.f_back

    def in_worker(self, dataset: Any) -> None:
        """All of them that the dataset has, again; not the dataset itself, which may build its index."""
        found = [
            self._made[id(value)] for _, value, _ in reachable(dataset, "dataset") if id(value) in self._made
        ]
        clients = [each for each in found if each[0] is not dataset] or found
        if not clients:
            raise MendError("no object that started a thread or connected was found on the dataset")
        for client, args, kwargs in clients:
            client.__init__(*args, **kwargs)
