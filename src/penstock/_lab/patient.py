"""The trial's side of the warden: start the patient, hear what becomes of it, take its output, end it."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock._lab import tree, warden
from penstock._lab.limits import Kept

START_S = 20.0  # for the warden to start the patient, on a machine that is very busy
END_S = warden.KILL_S + 5.0

_CHUNK = 1 << 16
_ROUNDS = 16  # chunks of one stream before the others get their turn
_ROOT = str(Path(__file__).parents[2])
_WARDEN = "import sys; sys.path.insert(0, sys.argv[1]); from penstock._lab.warden import main; main()"


@dataclass(frozen=True, slots=True)
class Order:
    """What the warden shall start."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    folder: str  # of the trial: the warden removes it if we cannot
    processes: int = 512
    nice: int = field(default_factory=lambda: os.getpriority(os.PRIO_PROCESS, 0))
    nofile: int | None = None
    shm_bytes: int | None = None


class Patient:
    """A running program under a warden. One owner; `close` may be called twice."""

    def __init__(self, order: Order) -> None:
        """Start it. Raises OSError when not even the warden could be started."""
        self.pid = 0
        self.refused = ""
        self.impossible = ""
        self.status: int | None = None
        self.ended_at: float | None = None
        self.is_crowd = False  # it had too many processes
        self.left: tuple[str, ...] = ()
        self.is_over = False  # the warden has said all that it had to say
        self.reaped: dict[int, tuple[int, float]] = {}
        self.stuck: tuple[int, ...] = ()
        self.stdout, self.stderr = Kept(), Kept()
        self._rest = b""
        self._is_closed = False
        self._selector = selectors.DefaultSelector()
        self._process = self._start(order)
        self._wait_started()

    def __enter__(self) -> Patient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def warden(self) -> int:
        """The pid below which everything of the patient is."""
        return self._process.pid

    @property
    def printed(self) -> int:
        """Bytes that it has printed."""
        return self.stdout.nbytes + self.stderr.nbytes

    def _start(self, order: Order) -> subprocess.Popen[bytes]:
        pipes = [os.pipe() for _ in range(2)]
        words = {**asdict(order), "stdout": pipes[0][1], "stderr": pipes[1][1]}
        try:
            process = subprocess.Popen(  # noqa: S603 - our own Python
                [sys.executable, "-I", "-S", "-c", _WARDEN, _ROOT],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                pass_fds=(pipes[0][1], pipes[1][1]), start_new_session=True, cwd="/",
            )  # fmt: skip
        except BaseException:
            for readable, _ in pipes:
                os.close(readable)
            raise
        finally:
            for _, writable in pipes:
                os.close(writable)
        for (readable, _), kept in zip(pipes, (self.stdout, self.stderr), strict=True):
            os.set_blocking(readable, False)
            self._selector.register(readable, selectors.EVENT_READ, kept.add)
        assert process.stdin is not None
        assert process.stdout is not None
        self._reports = process.stdout.fileno()
        os.set_blocking(self._reports, False)
        self._selector.register(self._reports, selectors.EVENT_READ, self._hear)
        with contextlib.suppress(OSError):
            process.stdin.write(json.dumps(words).encode() + b"\n")
            process.stdin.flush()
        return process

    def _wait_started(self) -> None:
        deadline = time.monotonic() + START_S
        while not self.pid and not self.is_over and time.monotonic() < deadline:
            self.pump(0.1)

    def pump(self, wait_s: float) -> None:
        """Take what there is to read, or what comes within that time."""
        if not self._selector.get_map():
            time.sleep(wait_s)
            return
        for key, _ in self._selector.select(wait_s):
            self._take(key)

    def _take(self, key: selectors.SelectorKey) -> None:
        for _ in range(_ROUNDS):
            try:
                part = os.read(key.fd, _CHUNK)
            except BlockingIOError:
                return
            except OSError:
                part = b""
            if not part:
                self._selector.unregister(key.fd)
                if key.fd == self._reports:
                    self.is_over = True
                else:
                    os.close(key.fd)
                return
            key.data(part)

    def _hear(self, part: bytes) -> None:
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            self._note(json.loads(line))

    def _note(self, told: dict[str, Any]) -> None:
        if "pid" in told:
            self.pid, self.impossible = told["pid"], told["impossible"]
        elif "refused" in told:
            self.refused = told["refused"]
        elif "reaped" in told:
            self.reaped[told["reaped"]] = (told["status"], told["at"])
            if told["reaped"] == self.pid:
                self.status, self.ended_at = self.reaped[self.pid]
        elif "crowd" in told:
            self.is_crowd = True
        elif "left" in told:
            self.left = tuple(told["left"])
        elif "stuck" in told:
            self.stuck = tuple(told["stuck"])

    def close(self) -> None:
        """End every process of the patient, and the warden."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.status is None:
            # What is printed from here on is our doing: complaints about processes that are gone.
            self.pump(0)
            self.stdout.is_closed = self.stderr.is_closed = True
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(OSError):
                self._process.stdin.write(b"end\n")
                self._process.stdin.flush()
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        known = tree.below(self.warden) if not self.is_over else []
        deadline = time.monotonic() + END_S
        while not self.is_over and time.monotonic() < deadline:
            self.pump(0.1)
        if not self.is_over or self._process.poll() not in {None, 0}:
            self._end_without_warden(known)
        self._process.wait()
        self._drain()

    def _end_without_warden(self, known: list[tree.Process]) -> None:
        """The warden was killed, or does not answer: end those that we know, if they are still the same."""
        now = {process.pid: process for process in tree.everybody()}
        for old in [*known, *tree.below(self.warden)]:
            same = now.get(old.pid)
            if same is not None and same.started == old.started:
                tree.kill([same])
        with contextlib.suppress(OSError):
            self._process.kill()

    def _drain(self) -> None:
        """Read what is left in the pipes, then close them."""
        deadline = time.monotonic() + 1.0  # nobody writes any more; but a process may sit in the kernel
        while self._selector.get_map() and time.monotonic() < deadline:
            self.pump(0.05)
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fd)
            if key.fd != self._reports:
                os.close(key.fd)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._selector.close()
