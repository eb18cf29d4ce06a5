"""The zygote: one quiet, single-threaded process that holds the dataset and forks workers on demand.

NOTE [ Fork and threads ]

    consumer ──fork──▶ zygote (forked birth) ──fork──▶ worker, worker, worker …
    consumer ──exec──▶ nursery ──fork──▶ zygote (clean birth) ──fork──▶ worker, worker …

A process with threads is a bad one to fork from: locks that another thread holds at that moment stay
locked for ever in the child. The zygote runs no thread and no user code (a clean one unpickles the dataset,
once), so every worker starts from the same quiet state, within milliseconds, whenever one is needed, and
shares the pages of the dataset with all the others.

NOTE [ No orphans ]

* Workers ask the kernel to be killed when the zygote ends (`PR_SET_PDEATHSIG`): it is their parent, and
  its only thread forked them. That reaches them in C code, asleep or stopped.
* The zygote, or the nursery, asks the same for the consumer if the consumer's main thread made it. From
  another thread it cannot: the signal would come when that *thread* ends.
* So it also watches a pidfd of the consumer, and the end-of-file of its control channel, and never waits
  without watching those two.

Runs in the zygote, and for its first lines in the worker.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing.context
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from penstock._arena import packing
from penstock._base import descriptors, libc
from penstock._base.origin import Origin, die_with
from penstock._engine import tame
from penstock._engine.black_box import BlackBox
from penstock._engine.channel import Channel, ChannelClosed
from penstock._engine.job import Job
from penstock._engine.messages import Born, Kill, Lost, Quit, Spawn

# How often a zygote without pidfds looks after its parent and its children.
LOOK_S = 0.05


def forked_life(control: socket.socket, job: Job, origin: Origin, mask: Iterable[int]) -> NoReturn:
    """The whole life of a zygote that was just forked, with all signals held back. Never returns."""
    status = 1
    try:
        leave_consumer()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        die_with(origin)
        Zygote(Channel(control), job, origin.consumer).serve()
        status = 0
    finally:
        os._exit(status)


def leave_consumer() -> None:
    """Forget what a child of the consumer should not act upon: its signal handlers and exit hooks."""
    signal.set_wakeup_fd(-1)
    # Ctrl-C reaches the whole terminal group; the consumer alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(name, signal.SIG_DFL)
    descriptors.fill_streams()
    libc.name_process("penstock-zygote")


class Zygote:
    """Forks workers, reaps them, reports their death."""

    def __init__(self, control: Channel, job: Job, consumer: int) -> None:
        self._control = control
        self._job = job
        self._consumer = consumer
        self._watch = pidfd(consumer)
        self._pids: dict[int, int] = {}  # pid to worker
        self._pidfds: dict[int, int] = {}  # pidfd to pid

    def serve(self) -> None:
        """Carry out commands until told to quit or until the consumer is gone."""
        tame.tame()
        packing.swap_large(self._job.dataset, self._job.packed)
        from penstock._engine.worker import warm_up

        warm_up()
        gc.freeze()  # a collection in a worker must not touch, and so copy, the pages of the dataset
        try:
            while self._is_wanted():
                self._wait(LOOK_S if self._watch is None else None)
                self._reap()
                for parcel in self._control.receive_nowait():
                    self._obey(parcel.message, parcel.fds)
        except (ChannelClosed, _Done):
            pass
        finally:
            self._end_workers()
            self._control.close()

    def _is_wanted(self) -> bool:
        return self._watch is not None or _is_alive(self._consumer)

    def _wait(self, timeout_s: float | None) -> None:
        poll = select.poll()
        poll.register(self._control.fileno(), select.POLLIN)
        if self._control.has_outbox:
            poll.modify(self._control.fileno(), select.POLLIN | select.POLLOUT)
        for fd in (self._watch, *self._pidfds):
            if fd is not None:
                poll.register(fd, select.POLLIN)
        if len(self._pidfds) < len(self._pids):
            timeout_s = LOOK_S
        ready = poll.poll(None if timeout_s is None else timeout_s * 1000)
        if any(fd == self._watch for fd, _ in ready):
            raise _Done
        self._control.flush()

    def _obey(self, message: Any, fds: list[int]) -> None:
        if isinstance(message, Spawn):
            self._spawn(message, fds)
        elif isinstance(message, Kill):
            for pid, worker in self._pids.items():
                if worker == message.worker:
                    os.kill(pid, message.signal)
        elif isinstance(message, Quit):
            self._await_workers(time.monotonic() + message.grace_s)
            raise _Done

    def _spawn(self, order: Spawn, fds: list[int]) -> None:
        worker, job = order.worker, self._job
        if order.life:
            job = replace(job, shared_seed=order.shared_seed, epoch=order.epoch)
        process = multiprocessing.context.Process(  # gives user code a proper current_process()
            target=_work, args=(job, order, *fds), name=f"penstock-worker-{worker}"
        )
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError as failure:
            _close(fds)
            # No pid: the consumer reports that the system refused the fork.
            self._control.send(Lost(worker, 0, failure.errno or 1))
            return
        if pid == 0:
            self._become_worker(process, zygote)
        _close(fds)
        self._pids[pid] = worker
        watch = pidfd(pid)
        if watch is not None:
            self._pidfds[watch] = pid
        self._control.send(Born(worker, pid))

    def _become_worker(self, process: Any, zygote: int) -> NoReturn:
        status = 1
        try:
            libc.die_with_parent()
            if os.getppid() != zygote:  # it died between the fork and the line above
                os._exit(1)
            _be_killed_first()
            self._control.close()
            for fd in (*self._pidfds, self._watch):
                if fd is not None:
                    os.close(fd)
            # What multiprocessing itself calls after a fork; the pidfd lets it tell whether its parent lives.
            status = process._bootstrap(pidfd(zygote))  # noqa: SLF001
        finally:
            os._exit(status)

    def _reap(self) -> None:
        while self._pids:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            worker = self._pids.pop(pid, None)
            for fd in [fd for fd, owner in self._pidfds.items() if owner == pid]:
                os.close(fd)
                del self._pidfds[fd]
            if worker is not None:
                self._control.send(Lost(worker, pid, os.waitstatus_to_exitcode(status)))

    def _await_workers(self, deadline: float) -> None:
        while self._pids and (left := deadline - time.monotonic()) > 0:
            poll = select.poll()
            for fd in (self._watch, *self._pidfds):
                if fd is not None:
                    poll.register(fd, select.POLLIN)
            short = left if len(self._pidfds) == len(self._pids) else min(left, LOOK_S)
            if any(fd == self._watch for fd, _ in poll.poll(short * 1000)):
                return
            self._reap()

    def _end_workers(self) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChannelClosed):
            while self._pids:
                pid, status = os.waitpid(-1, 0)  # killed: comes at once, except from the kernel's own sleep
                worker = self._pids.pop(pid, None)
                if worker is not None:
                    self._control.send(Lost(worker, pid, os.waitstatus_to_exitcode(status)))


class _Done(Exception):  # noqa: N818 - leaves the loop
    """The zygote has no more reason to live."""


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _work(job: Job, order: Spawn, fd: int, box: int | None = None) -> None:
    from penstock._engine import stale
    from penstock._engine.worker import work

    channel = Channel(socket.socket(fileno=fd), is_patient=True)
    stale.apply(job.dataset, order.attributes)
    work(job, order, channel, BlackBox() if box is None else BlackBox.open(box))
    channel.close()


def _be_killed_first() -> None:
    """When memory runs out, the kernel ends this process: the consumer then tells, instead of vanishing."""
    with contextlib.suppress(OSError):  # no /proc
        Path("/proc/self/oom_score_adj").write_text("1000")


def pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None where there is none."""
    try:
        return os.pidfd_open(pid) if sys.platform == "linux" else None
    except (AttributeError, OSError):
        return None  # Linux before 5.3


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
