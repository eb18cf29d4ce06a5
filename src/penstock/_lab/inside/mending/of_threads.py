"""Mends of threads that a fork does not copy."""

from __future__ import annotations

import os
import threading
from typing import Any, ClassVar

from penstock._lab.inside.mending.mend import Mend, MendError
from penstock._lab.inside.walk import walk

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
        for _, value, _ in walk(dataset, "dataset"):
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
