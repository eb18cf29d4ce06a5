"""Consumers in processes of their own: start a script, hear what it says, signal it, see what it leaves.

with stage.play(SCRIPT) as consumer:
    consumer.hear("ready")
    consumer.kill()
    consumer.leaves_nothing()
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

# The promise is one second from the end of a consumer to the end of the last worker. An interpreter that has
# imported torch takes half of one to end by itself, and a machine with other work makes that two or three.
SOON_S = 3.0
# No script here needs this long, whatever the machine does; past it the scenario counts as a hang.
HANG_S = 15.0
# Where a script writes that has no standard output.
RESULT = 100

PRELUDE = """\
import gc, os, signal, sys, threading, time
import numpy as np
import torch
from penstock import DataLoader
from penstock import errors
from tests.chaos.datasets import *

"""

# Half a second goes into the end of an interpreter with torch: one file tests it, the others do without.
QUICK_END = """
sys.stdout.flush()
os._exit(0)
"""


def script(text: str) -> str:
    """A script with the usual imports in front."""
    return PRELUDE + textwrap.dedent(text)


def children(pid: int) -> set[int]:
    """Every descendant of a process."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found |= {child} | children(child)
    return found


def describe(pids: set[int]) -> list[str]:
    """Names and states of processes, for a message."""
    lines = []
    for pid in sorted(pids):
        with contextlib.suppress(OSError):
            _, name, rest = Path(f"/proc/{pid}/stat").read_text().replace("(", ")").split(")", 2)
            lines.append(f"{pid} {name} {rest.split()[0]}")
    return lines


def wait_until(condition, limit_s: float) -> bool:
    """Look until something is true of the system that nobody announces."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


class Consumer:
    """A running script."""

    def __init__(self, stage: Stage, pid: int, out: int, err: int) -> None:
        self._stage, self.pid = stage, pid
        self._pipes = {out: bytearray(), err: bytearray()}
        self._open = {out, err}
        self._out, self._err = out, err
        self._line_start = 0

    @property
    def out(self) -> str:
        """What it has printed."""
        return self._pipes[self._out].decode(errors="replace")

    @property
    def err(self) -> str:
        """What it, and its workers, have complained about."""
        return self._pipes[self._err].decode(errors="replace")

    def hear(self, start: str, limit_s: float = HANG_S) -> str:
        """Wait for a line that begins with `start`; return the rest of it."""
        deadline = time.monotonic() + limit_s
        while True:
            text = self.out
            while (end := text.find("\n", self._line_start)) >= 0:
                line, self._line_start = text[self._line_start : end], end + 1
                if line.startswith(start):
                    return line[len(start) :].strip()
            assert self._read(deadline), f"never said {start!r}:\n{self.out}\n{self.err}\n{self.state()}"

    def family(self) -> set[int]:
        """All processes that this script started, directly or not, alive or zombie."""
        return children(self._stage.pid) - {self.pid}

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """As the terminal does: to everybody of the foreground group."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def wait(self, limit_s: float = HANG_S) -> int:
        """Wait for its end; return the exit status, negative for a signal."""
        status = self._stage.status_of(self.pid, limit_s)
        assert status is not None, f"still running after {limit_s} s\n{self.out}\n{self.err}\n{self.state()}"
        # Survivors hold the pipes open: then there is no end-of-file, and `leaves_nothing` tells why.
        while self._read(time.monotonic() + 0.2):
            pass
        return status

    def ends_well(self, limit_s: float = HANG_S) -> str:
        """Wait for its end, which is a success without complaints; return what it printed."""
        status = self.wait(limit_s)
        assert status == 0, f"exit status {status}\n{self.out}\n{self.err}"
        assert self.err == "", self.err
        self.leaves_nothing()
        return self.out

    def leaves_nothing(self, limit_s: float = SOON_S) -> None:
        """All processes that it started are gone, or go in time."""
        gone = wait_until(lambda: not self.family(), limit_s)
        assert gone, f"left behind after {limit_s} s: {describe(self.family())}\n{self.out}\n{self.err}"

    def state(self) -> str:
        """The processes of this script, for a message."""
        return "\n".join(describe({self.pid} | self.family()))

    def clear(self) -> None:
        """End everything."""
        for pid in {self.pid} | self.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._stage.status_of(self.pid, HANG_S)
        wait_until(lambda: not self.family(), HANG_S)
        for fd in self._pipes:
            os.close(fd)

    def _read(self, deadline: float) -> bool:
        """Take in what was printed; False when nothing more can come, or the time is over."""
        if not self._open:
            return False
        ready, _, _ = select.select(self._open, [], [], max(0.0, deadline - time.monotonic()))
        for fd in ready:
            data = os.read(fd, 1 << 16)
            self._pipes[fd] += data
            if not data:
                self._open.discard(fd)
        return bool(ready)


class Stage:
    """The process that consumers are forked from."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0
        self._statuses: dict[int, int] = {}
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            program = f"from tests.chaos import launching; exec(launching.next_script({there.fileno()}))"
            self._process = subprocess.Popen(
                [sys.executable, "-c", program], pass_fds=[there.fileno()], env=environment()
            )
        self._sock, self.pid = here, self._process.pid

    @contextlib.contextmanager
    def play(self, text: str, *, env=None, limits=None, closed=()):
        """Run a script in a process of its own; everything that it started is ended afterwards."""
        self._count += 1
        path = self._directory / f"script_{self._count}.py"
        path.write_text(script(text))
        order = {
            "path": str(path),
            "env": {**os.environ, **(env or {})},
            "limits": limits or {},
            "directory": str(self._directory),
            "closed": list(closed),
        }
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        socket.send_fds(self._sock, [json.dumps(order).encode()], [nothing, out_end, err_end])
        for fd in (nothing, out_end, err_end):
            os.close(fd)
        consumer = Consumer(self, self._hear_start(), out, err)
        try:
            yield consumer
        finally:
            consumer.clear()

    def run(self, text: str, **options) -> str:
        """Run a script to its end, which is a success that leaves nothing; return what it printed."""
        with self.play(textwrap.dedent(text) + QUICK_END, **options) as consumer:
            return consumer.ends_well()

    def status_of(self, pid: int, limit_s: float) -> int | None:
        """The exit status of a consumer, or None when it does not end in time."""
        deadline = time.monotonic() + limit_s
        while pid not in self._statuses:
            message = self._hear(deadline - time.monotonic())
            if message is None:
                return None
            self._statuses[message["pid"]] = message["status"]
        return self._statuses[pid]

    def close(self) -> None:
        self._sock.close()
        self._process.wait(HANG_S)

    def _hear_start(self) -> int:
        """The pid of the consumer that was just asked for; ends of earlier ones may come first."""
        while True:
            message = self._hear(HANG_S)
            assert message is not None, "the stage does not answer"
            if "status" not in message:
                return message["pid"]
            self._statuses[message["pid"]] = message["status"]

    def _hear(self, limit_s: float) -> dict | None:
        ready, _, _ = select.select([self._sock], [], [], max(0.0, limit_s))
        return json.loads(self._sock.recv(1 << 16)) if ready else None


def environment(**more: str) -> dict[str, str]:
    """The environment of a fresh interpreter that finds what this one finds."""
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)]), **more}
