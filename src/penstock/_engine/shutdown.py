"""The one order in which an iterator's engine closes.

NOTE [ Shutdown ]

It happens when the epoch ends (workers not persistent), when the iterator is dropped or collected in the
middle of an epoch, at `_shutdown_workers()`, and at the end of the interpreter; once, whichever comes first.

  1. Refuse: the runtime hands out no more batches.
  2. Hang up: the connections to the workers are ended. A worker that waits for a ticket, or
     finishes its sample, reads the end-of-file and exits by itself; multiprocessing's finalizers run.
  3. Quit: the zygote waits GRACE_S for them, kills the rest, reaps all, and exits. A worker in the
     middle of a long sample is not waited for: nobody wants its batch.
  4. Wait for the zygote, at most LIMIT_S more; then it is killed, and the kernel kills its workers
     (NOTE [ No orphans ] in `zygote`).
  5. Only now, when nobody can write to them any more, slabs go back to the arena. Batches that the consumer
     holds stay valid (NOTE [ Lease life ]).

Every step works when the other side is already dead. An exception that comes while we wait, such as a second
Ctrl-C, takes the wait away and nothing else: the zygote is killed at once, and step 5 follows. In a process
forked from the consumer nothing happens at all: the workers are the parent's.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from penstock._engine.backends.process import ProcessBackend
from penstock._engine.channel import ChannelClosed
from penstock._engine.messages import Lost, Quit

GRACE_S = 0.3
LIMIT_S = 0.5


def close(backend: Any, *, is_final: bool = True, is_torn: bool = False) -> None:
    """Close a backend of any kind; if another follows, the arena stays. May be called twice."""
    if isinstance(backend, ProcessBackend):
        if is_torn:
            backend.on_close = backend.arena.close  # it may have forgotten slabs: no next epoch gets it
        close_processes(backend, is_final=is_final)
    else:
        backend.close()


def close_processes(backend: ProcessBackend, *, is_final: bool = True) -> None:
    """End all workers of a backend and take their slabs back. May be called twice."""
    if backend._owner != os.getpid():  # noqa: SLF001 - inherited by a fork
        return
    zygote = backend.zygote
    if not is_final:
        backend.on_close = _leave_arena
    try:
        for channel in backend.channels.values():
            channel.hang_up()  # step 2
        if zygote.channel.fileno() >= 0:
            deadline = time.monotonic() + GRACE_S + LIMIT_S
            with contextlib.suppress(ChannelClosed):
                zygote.channel.send(Quit(GRACE_S))  # step 3
            for message in zygote.wait_end(deadline):  # step 4
                if isinstance(message, Lost):
                    backend.processes[message.worker]._exitcode = message.status  # noqa: SLF001
    finally:
        zygote.end()
        backend.reclaim()  # step 5


def _leave_arena() -> None:
    """Another backend of the same iterator takes the arena over."""
