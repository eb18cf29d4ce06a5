"""The two births of a zygote, seen from the consumer.

    forked   the consumer forks it: it inherits all that the program has, as torch's `fork` workers do.
    clean    the nursery forks it: a fresh interpreter that has imported torch and nothing else of the
             program; dataset and collate function are shipped to it (see `ship`).

The nursery is one process for the whole life of the consumer. Importing torch takes seconds, so it is
paid once, and every later clean zygote starts in milliseconds. It is started when the first one is asked
for, and ends with the consumer.

Runs on the consumer's thread.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator
from multiprocessing import util as mp_util
from typing import Any

from penstock._base.origin import Origin
from penstock._engine import tame
from penstock._engine.backends import ship
from penstock._engine.backends.zygote import forked_life, pidfd
from penstock._engine.channel import Channel, ChannelClosed, pair
from penstock._engine.job import Job
from penstock._engine.messages import Adopt, Load, Loaded
from penstock.errors import WorkerLostError

# A fresh interpreter that imports torch from a cold disk can take a minute; longer is a failure.
BIRTH_LIMIT_S = 300.0
# A killed process is gone at once, except from a sleep of the kernel's own.
KILL_LIMIT_S = 1.0


class ZygoteHandle:
    """The consumer's end of a zygote: its pid, its control channel, and a pidfd that tells of its end.

    The end-of-file of the channel alone would not tell: whatever another thread, or a library, forks at the
    moment of the birth inherits a copy of the zygote's end.
    """

    def __init__(self, channel: Channel, pid: int, *, is_child: bool) -> None:
        self.channel = channel
        self.pid = pid
        self.watch = pidfd(pid)
        self._is_child = is_child
        self.is_gone = False  # known to have ended, or to be about to
        # For a birth that is interrupted: until a backend has it, nobody else would end it.
        self._safety_net = weakref.finalize(
            self, _abandon, self.watch, pid if is_child else None, os.getpid()
        )
        self._safety_net.atexit = False  # it ends with the consumer

    def wait_end(self, deadline: float) -> list[Any]:
        """Wait until the zygote is gone, then `end` it, as also when interrupted; its last messages."""
        last_words: list[Any] = []
        try:
            self._listen(deadline, last_words)
        finally:
            self.end()
        return last_words

    def end(self) -> None:
        """Kill the zygote unless it is gone, reap it, and close our ends. May be called twice."""
        if not self.is_gone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
                self._listen(time.monotonic() + KILL_LIMIT_S, [])
            self.is_gone = True
        if self._is_child:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self._is_child = False
        self.leave()

    def leave(self) -> None:
        """Close our ends, or a fork's copies of them."""
        self._safety_net.detach()
        self.channel.close()
        watch, self.watch = self.watch, None
        if watch is not None:
            os.close(watch)

    def _listen(self, deadline: float, words: list[Any]) -> None:
        """Take in messages until the zygote is gone."""
        poll = select.poll()
        for fd in (self.channel.fileno(), self.watch):
            if fd is not None and fd >= 0:
                poll.register(fd, select.POLLIN)
        while not self.is_gone and (left := deadline - time.monotonic()) > 0:
            ready = [fd for fd, _ in poll.poll(left * 1000)]
            try:
                words += (parcel.message for parcel in self.channel.receive_nowait())
            except ChannelClosed:
                self.is_gone = True
            self.is_gone |= self.watch in ready


def _abandon(watch: int | None, child: int | None, owner: int) -> None:
    if owner != os.getpid():
        return
    if watch is not None:
        os.close(watch)
    if child is not None:
        with contextlib.suppress(ChildProcessError):  # reaped by somebody else: the pid is not ours any more
            if os.waitpid(child, os.WNOHANG) == (0, 0):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def forked(job: Job) -> ZygoteHandle:
    """Fork a zygote from this process, as it is now."""
    here, there = pair()
    tame.scan_pools()
    mp_util._flush_std_streams()  # type: ignore[attr-defined]  # noqa: SLF001 - else text would come twice
    origin = Origin(os.getpid(), threading.get_native_id())
    try:
        with warnings.catch_warnings(), _held_back(signal.valid_signals()) as mask:
            # Python 3.12 warns of forks in a process with threads; `health` looks after those.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
            if pid == 0:
                here.close()
                forked_life(there, job, origin, mask)
            return ZygoteHandle(Channel(here), pid, is_child=True)
    except OSError as failure:
        here.close()
        raise cannot_start("the system refused to fork the process", str(failure)) from failure
    finally:
        there.close()


def clean(job: Job) -> ZygoteHandle:
    """Have the nursery fork a fresh zygote, and ship the job to it."""
    cargo = ship.pack(job)  # first: a dataset that cannot go is refused before anything is started
    try:
        try:
            return _adopt(cargo)
        except ChannelClosed:
            if not _is_nursery_gone():
                raise
            close_nursery()  # somebody killed it, perhaps with our message in its hands
            return _adopt(cargo)
    except ChannelClosed as gone:
        raise cannot_start("the clean process for workers ended at once", "") from gone
    finally:
        cargo.close()


def _adopt(cargo: ship.Cargo) -> ZygoteHandle:
    here, there = pair()
    channel = Channel(here)
    try:
        with there, _Nursery.lock:
            _nursery().send(Adopt(), [there.fileno()])
        channel.send(Load(tuple(cargo.manifest)), cargo.fds)
        loaded = _await_loaded(channel)
    except BaseException:
        channel.close()
        raise
    return ZygoteHandle(channel, loaded.pid, is_child=False)


@contextlib.contextmanager
def _held_back(signals: Iterable[int]) -> Iterator[set[Any]]:
    """Let no signal run a handler in this thread, nor in a child made here, before the block is left.

    A child has the consumer's handlers and stands in the middle of its code, which an exception would unwind
    a second time; here it would have us forget a process just started. Yields the mask of before.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())  # apart: blocking runs handlers that were due
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        yield mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def cannot_start(what: str, why: str) -> WorkerLostError:
    """The error for workers that never came to life."""
    return WorkerLostError(
        "PS603",
        f"workers cannot be started: {what}",
        why=why,
        fix="check free memory and the limit of processes (`ulimit -u`), or lower `num_workers`",
    )


def _await_loaded(channel: Channel) -> Loaded:
    deadline = time.monotonic() + BIRTH_LIMIT_S
    poll = select.poll()
    while (left := deadline - time.monotonic()) > 0:
        is_flushed = channel.flush()
        poll.register(channel.fileno(), select.POLLIN if is_flushed else select.POLLIN | select.POLLOUT)
        poll.poll(left * 1000)
        for parcel in channel.receive_nowait():
            message: Loaded = parcel.message
            if message.error:
                raise cannot_start("the dataset arrived but could not be rebuilt", message.error)
            return message
    raise cannot_start("the clean process for workers did not answer", f"waited {BIRTH_LIMIT_S} s")


# ---- the nursery --------------------------------------------------------------------------------


_NURSERY = """
import sys
fd, consumer, thread = map(int, sys.argv[1:4])
sys.path[:] = sys.argv[4:]
from penstock._base.origin import Origin, die_with
die_with(Origin(consumer, thread))
from penstock._engine.backends.nursery import life
life(fd, Origin(consumer, thread))
"""


class _Nursery:
    """The running nursery, if any, of this process."""

    lock = threading.Lock()  # two threads start one nursery, and its channel carries one message at a time
    process: subprocess.Popen[bytes] | None = None
    channel: Channel | None = None
    owner = 0


def _nursery() -> Channel:
    if _Nursery.owner != os.getpid():
        _Nursery.channel = _Nursery.process = None  # inherited by a fork: the parent's, not ours
    if _Nursery.channel is None or (_Nursery.process and _Nursery.process.poll() is not None):
        _start_nursery()
    assert _Nursery.channel is not None
    return _Nursery.channel


def _is_nursery_gone() -> bool:
    try:
        if _Nursery.channel is not None:
            _Nursery.channel.receive_nowait()  # it never speaks: all that can come is its end
    except ChannelClosed:
        return True
    return _Nursery.channel is None


def _start_nursery() -> None:
    here, there = pair()
    command = [
        sys.executable,
        *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]  # noqa: SLF001
        "-c",
        _NURSERY,
        str(there.fileno()),
        str(os.getpid()),
        str(threading.get_native_id()),
        *sys.path,
    ]
    try:
        # Ctrl-C reaches it too, long before its first line runs: held back until it ignores it.
        with _held_back({signal.SIGINT}):
            _Nursery.process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
                command,
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=ship.working_directory(),
                env={**os.environ, **tame.ENVIRONMENT},
            )
    except OSError as failure:
        here.close()
        raise cannot_start("no fresh interpreter could be started", str(failure)) from failure
    finally:
        there.close()
    _Nursery.channel, _Nursery.owner = Channel(here), os.getpid()
    atexit.register(close_nursery)


def _leave_nursery() -> None:
    """In a fork of the consumer: its copy of the channel must not keep the nursery alive."""
    _Nursery.lock = threading.Lock()  # another thread may have held it
    if _Nursery.channel is not None:
        _Nursery.channel.close()
        _Nursery.channel = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_nursery)


def close_nursery() -> None:
    """End the nursery of this process, if there is one. May be called twice."""
    if _Nursery.owner != os.getpid() or _Nursery.channel is None:
        return
    _Nursery.channel.close()
    process, _Nursery.channel, _Nursery.process = _Nursery.process, None, None
    if process is not None:
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    atexit.unregister(close_nursery)
