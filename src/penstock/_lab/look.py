"""A look at the processes of a patient: what the kernel says first, then Python's stacks.

py-spy stops a process for a moment, which changes what /proc says of it: so /proc is read before, twice, some
tenths of a second apart, to see what moves. Every question has a time limit; an answer that does not come
leaves its part of the look empty.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from penstock._lab import tree
from penstock._lab.record import Frame, ProcessLook, ThreadLook
from penstock._lab.stall import Beat
from penstock._lab.tree import Process, slurp

WINDOW_S = 0.3
DUMP_S = 4.0  # for one call of py-spy
DUMPS_S = 10.0  # for all of them; those that come later are left out
MOST = 48  # processes that are looked at
MOST_THREADS = 48  # of each
MOST_FRAMES = 60

_NS = 1e-9
_IO = ("rchar", "wchar", "read_bytes", "write_bytes")


@dataclass(frozen=True, slots=True)
class Role:
    """What is known of a process from elsewhere."""

    name: str = "other"  # "main", "worker", "rank", "other"
    worker: int | None = None
    loader: str | None = None
    index: Any = None


class ThreadSight(NamedTuple):
    """A thread as /proc shows it."""

    tid: int
    name: str
    state: str
    wchan: str
    syscall: str
    run_s: float
    queued_s: float
    switches: int


def take(
    processes: list[Process], roles: Mapping[int, Role], *, window_s: float = WINDOW_S
) -> tuple[ProcessLook, ...]:
    """Look at every process: at the kernel's side of it, then at its stacks."""
    alive = [process for process in processes if process.is_alive][:MOST]
    before = {process.pid: (sights(process.pid), nbytes(process.pid)) for process in alive}
    time.sleep(window_s)
    after = {process.pid: (sights(process.pid), nbytes(process.pid)) for process in alive}
    fds = {process.pid: _count(f"/proc/{process.pid}/fd") for process in alive}
    dumps = stacks([process.pid for process in alive])
    return tuple(
        _look(process, roles.get(process.pid, Role()), before[process.pid], after[process.pid],
              (dumps.get(process.pid, []), fds[process.pid]))
        for process in alive
    )  # fmt: skip


def _look(
    process: Process,
    role: Role,
    before: tuple[list[ThreadSight], int],
    after: tuple[list[ThreadSight], int],
    more: tuple[list[dict[str, Any]], int],
) -> ProcessLook:
    dump, fds = more
    old = {sight.tid: sight for sight in before[0]}
    named = {thread.get("os_thread_id"): thread for thread in dump}
    threads = tuple(_thread(sight, old.get(sight.tid), named.get(sight.tid)) for sight in after[0])
    worker, index = _in_hand(named.get(process.pid, {}))
    return ProcessLook(
        pid=process.pid,
        parent=process.parent,
        role=role.name,
        worker=role.worker if role.worker is not None else worker,
        loader=role.loader,
        index=role.index if role.index is not None else index,
        threads=threads,
        cpu_moved=any(thread.cpu_moved for thread in threads),
        read_moved=before[1] != after[1],
        fds=fds,
    )


def _thread(sight: ThreadSight, old: ThreadSight | None, dump: dict[str, Any] | None) -> ThreadLook:
    # A poll every few milliseconds takes microseconds; more is work.
    cpu_moved = old is not None and sight.run_s - old.run_s > 0.02 * WINDOW_S
    return ThreadLook(
        tid=sight.tid,
        name=str((dump or {}).get("thread_name") or sight.name),
        frames=_frames(dump),
        wchan=sight.wchan,
        syscall=sight.syscall,
        state=sight.state,
        cpu_moved=cpu_moved,
        switches_moved=old is not None and sight.switches != old.switches,
    )


def _frames(dump: dict[str, Any] | None) -> tuple[Frame, ...]:
    listed = (dump or {}).get("frames") or ()
    return tuple(
        Frame(str(each.get("name")), str(each.get("filename")), int(each.get("line") or 0))
        for each in listed[:MOST_FRAMES]
    )


def _in_hand(dump: dict[str, Any]) -> tuple[int | None, Any]:
    """Number and sample of a worker, from the local variables of torch's own frames."""
    worker, index = None, None
    for frame in dump.get("frames") or ():
        local = {each.get("name"): each.get("repr") for each in frame.get("locals") or ()}
        file = str(frame.get("filename")).replace("\\", "/")
        if file.endswith("torch/utils/data/_utils/fetch.py") and index is None:
            index = _plain(local.get("idx"))
        if file.endswith("torch/utils/data/_utils/worker.py") and "worker_id" in local:
            worker = _plain(local.get("worker_id"))
    return worker if isinstance(worker, int) else None, index


def _plain(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        return text


def stacks(pids: list[int]) -> dict[int, list[dict[str, Any]]]:
    """The Python threads of each process, as py-spy tells them; a process that it cannot read is left out."""
    tool = _tool()
    if tool is None or not pids:
        return {}
    deadline = time.monotonic() + DUMPS_S

    def dump(pid: int) -> list[dict[str, Any]]:
        return _dump(tool, pid) if time.monotonic() < deadline else []

    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        return {pid: told for pid, told in zip(pids, pool.map(dump, pids), strict=True) if told}


def _dump(tool: str, pid: int) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(  # noqa: S603 - our own tool, no shell
            [tool, "dump", "--json", "--locals", "--pid", str(pid)],
            capture_output=True, stdin=subprocess.DEVNULL, timeout=DUMP_S, check=False,
        )  # fmt: skip
        told = json.loads(done.stdout) if done.returncode == 0 else []
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
    return [thread for thread in told if isinstance(thread, dict)] if isinstance(told, list) else []


def _tool() -> str | None:
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def sights(pid: int) -> list[ThreadSight]:
    """The threads of a process, the main one first."""
    return [_sight(pid, tid) for tid in tree.threads_of(pid)[:MOST_THREADS]]


def _sight(pid: int, tid: int) -> ThreadSight:
    folder = f"/proc/{pid}/task/{tid}"
    run_s, queued_s = _times(folder)
    status = slurp(f"{folder}/status")
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    wchan = slurp(f"{folder}/wchan").strip()
    return ThreadSight(
        tid=tid,
        name=lines.get("Name", ""),
        state=lines.get("State", "")[:1],
        wchan="" if wchan == "0" else wchan,
        syscall=_call(slurp(f"{folder}/syscall")),
        run_s=run_s,
        queued_s=queued_s,
        switches=int(lines.get("voluntary_ctxt_switches", "0")),
    )


def _call(text: str) -> str:
    """What /proc/PID/syscall says: number and arguments, without the two registers at the end."""
    words = text.split()
    if not words or not words[0].isdigit():
        return words[0] if words and words[0] == "running" else ""
    return " ".join(words[:7])


def beat(pid: int, *, only_main: bool) -> Beat:
    """How far a process has come; with `only_main` its main thread alone."""
    tids = [pid] if only_main else tree.threads_of(pid)[:MOST_THREADS]
    run = queued = 0.0
    state = "S"
    for tid in tids:
        folder = f"/proc/{pid}/task/{tid}"
        run_s, queued_s = _times(folder)
        run, queued = run + run_s, queued + queued_s
        letter = slurp(f"{folder}/stat").rpartition(")")[2][1:2]
        state = letter if letter in {"R", "D"} and state != "D" else state
    return Beat(run, queued, 0 if only_main else nbytes(pid), state)


def nbytes(pid: int) -> int:
    """Bytes that a process has read and written, by calls and by pages."""
    fields = dict(line.split(": ") for line in slurp(f"/proc/{pid}/io").splitlines() if ": " in line)
    return sum(int(fields.get(name, 0)) for name in _IO)


def _times(folder: str) -> tuple[float, float]:
    words = slurp(f"{folder}/schedstat").split()
    if len(words) >= 2:  # noqa: PLR2004 - ran, waited, slices
        return int(words[0]) * _NS, int(words[1]) * _NS
    ticks = slurp(f"{folder}/stat").rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), 0.0


def _count(folder: str) -> int:
    try:
        return len(os.listdir(folder))  # noqa: PTH208 - a count
    except OSError:
        return 0
