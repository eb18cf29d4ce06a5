"""Runs a program of the demo: in a process group of its own, with a time limit; nothing is left of it.

What a run did is read from what it printed and how it ended.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock._cli.demo.examples import Example, Judgement, Outcome, Way

SHM_MB = 64  # Docker's default for /dev/shm
BUDGET_S = 110.0  # for all examples: a demo of more than two minutes is none
LIMIT_S = 60.0  # of one run: twenty times what any of them takes on two quiet cores
EXAM_S, SHORTEST_EXAM_S = 45.0, 20.0  # of one exam; with less it would say nothing
SHARE = 0.7  # of the time that is left, for one exam
GRACE_S = 5.0  # for an exam to end by itself
ASKED_S = 3.0  # for a program that was asked to end
FILES = 700


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that was seen of one example."""

    example: Example
    runs: dict[str, Outcome] = field(default_factory=dict)  # torch's loader, by way
    judgement: Judgement | None = None
    report: dict[str, Any] | None = None  # the doctor's, on the way that failed
    ours: Outcome | None = None  # our loader, on the same way
    way: str = ""
    missing: str = ""  # what is not installed


class Stage:
    """Where programs run: a folder with the files that they read, and a small /dev/shm where one can be had.

    `close` ends whatever still runs; it may be called twice, and from another thread.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.small_shm = small_shm()
        self._deadline = time.monotonic() + BUDGET_S
        self._running: set[subprocess.Popen[str]] = set()
        self._is_closed = False
        (folder / "files").mkdir()
        for number in range(FILES):
            (folder / "files" / f"{number:03}.bin").write_bytes(bytes(1000))

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every program that still runs."""
        self._is_closed = True
        for process in list(self._running):
            end(process)

    def play(self, number: int, example: Example) -> Scene:
        """Run one example with torch's loader, take it to the doctor, and run it with ours."""
        if example.needs and importlib.util.find_spec(example.needs[0]) is None:
            return Scene(example, missing=example.needs[1])
        script = self.folder / f"example_{number}.py"
        script.write_text(example.program, encoding="utf-8")
        runs = {way.name: self.run([sys.executable], script, way) for way in example.ways}
        way = next((each for each in example.ways if not runs[each.name].is_ok), example.ways[0])
        if way.argument == "printed":  # a slip of the pen is no matter for a doctor
            way = example.ways[1]
        report = self.examine(script, way)
        ours = self.run([sys.executable, "-m", "penstock", "run"], script, way)
        return Scene(example, runs, example.judge(runs), report, ours, way.name)

    def run(self, program: Sequence[str], script: Path, way: Way) -> Outcome:
        """One bounded run."""
        command = [*self._before(way), *program, script.name, *([way.argument] if way.argument else [])]
        return outcome(*self._bounded(command, LIMIT_S))

    def examine(self, script: Path, way: Way) -> dict[str, Any] | None:
        """The doctor's report on one way; None when there is none."""
        doctor = [sys.executable, "-m", "penstock", "doctor", "--quick", "--quiet", "--format", "json"]
        arguments = ["--", way.argument] if way.argument else []
        left = self._deadline - time.monotonic()
        limit_s = round(max(SHORTEST_EXAM_S, min(EXAM_S, SHARE * left)))
        command = [*self._before(way), *doctor, "--timeout", str(limit_s), script.name, *arguments]
        text, _, _ = self._bounded(command, limit_s + GRACE_S)
        try:
            report: dict[str, Any] = json.loads(text)
        except ValueError:
            return None
        return report

    def _bounded(self, command: Sequence[str], limit_s: float) -> tuple[str, str, int | None]:
        """Standard output, standard error and exit status of a command; None when it had to be ended."""
        if self._is_closed:
            return "", "", None
        process = subprocess.Popen(  # noqa: S603 - our own programs
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._running.add(process)
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            end(process)
            out, err = process.communicate()
            return out, err, None
        finally:
            self._running.discard(process)
        return out, err, process.returncode

    def _before(self, way: Way) -> tuple[str, ...]:
        return self.small_shm if way.in_small_shm else ()


def small_shm() -> tuple[str, ...]:
    """The command prefix that gives a program its own small /dev/shm; empty if this user may not do that."""
    if shutil.which("unshare") is None or not sys.platform.startswith("linux"):
        return ()
    mount = f"mount -t tmpfs -o size={SHM_MB}m tmpfs /dev/shm"
    for flags in (["-m"], ["-Urm"]):
        prefix = ("unshare", *flags, "sh", "-c", f'{mount} && exec "$@"', "sh")
        if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:  # noqa: S603
            return prefix
    return ()


def end(process: subprocess.Popen[str]) -> None:
    """End a program and its group: by request, so that an exam ends its own patient, then by force."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(ASKED_S)
        os.killpg(process.pid, signal.SIGKILL)


def outcome(out: str, err: str, status: int | None) -> Outcome:
    """What a run did, from what it printed."""
    result = re.search(r"^RESULT (\d+) (\S+)$", out, re.MULTILINE)
    threads = re.search(r"^THREADS (\d+)$", out, re.MULTILINE)
    return Outcome(
        samples=int(result[1]) if result and status == 0 else None,
        seconds=float(result[2]) if result else 0.0,
        error="" if status == 0 else _last_error(err, status),
        is_hung=status is None,
        threads=int(threads[1]) if threads else None,
        names_sample="sample index" in err,
    )


def _last_error(err: str, status: int | None) -> str:
    if status is None:
        return f"no end after {LIMIT_S:.0f} s"
    lines = [line for line in err.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (lines or err.strip().splitlines() or [f"ended with status {status}"])[-1].strip()
