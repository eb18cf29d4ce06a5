"""Memory, descriptors and processes of a patient over time.

Cheap figures at every sample. What makes the kernel walk page tables (and the patient wait meanwhile) is
read at most once a second, and so seldom that it takes no more than a few per cent of the time.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from penstock._lab.record import Vitals
from penstock._lab.tree import Process, slurp

SAMPLE_S = 0.2
SLOW_S = 0.8  # between two walks of the page tables
SLOW_SHARE = 0.03  # of the time may be spent on them

WORKER_NAME = "pt_data_worker"  # which torch gives its workers

_MOST = 64  # processes that are weighed
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SHM_MAP = "/dev/shm/"  # noqa: S108 - as it stands in /proc/PID/maps


@dataclass(frozen=True, slots=True)
class Weight:
    """Memory of a process, in bytes."""

    pss: int = 0
    uss: int = 0


class Scale:
    """Weighs the patient's processes; remembers what is too dear to read each time."""

    def __init__(self, clock_s: float) -> None:
        """`clock_s` is when the trial began, on the clock of the times given later."""
        self._began_s = clock_s
        self._slow_at = clock_s
        self._weights: dict[int, Weight] = {}
        self._maps = 0
        self._shm_base: int | None = None
        self._ticks: dict[tuple[int, int], int] = {}
        self.shm_names: set[str] = set()  # in /dev/shm, that one of the processes had mapped

    def weigh(self, at: float, main: int, processes: list[Process], batches: int) -> Vitals:
        """One sample, at time `at`."""
        alive = [process for process in processes if process.is_alive]
        if at >= self._slow_at:
            self._weigh_slowly(main, alive)
            self._slow_at = at + max(SLOW_S, (time.monotonic() - at) / SLOW_SHARE)
        workers = [process.pid for process in alive if is_worker(process)]
        return Vitals(
            at_s=at - self._began_s,
            processes=len(alive),
            main_rss=rss(main),
            main_fds=descriptors(main),
            main_maps=self._maps,
            tree_pss=sum(self._weight(process.pid).pss for process in alive),
            workers_uss=sum(self._weight(pid).uss for pid in workers),
            worker_fds=max(map(descriptors, workers), default=0),
            shm_used=self.shm_used(main),
            batches=batches,
            cpu_s=self._cpu_s(alive),
            worker_waits=tuple(waits_in(pid) for pid in workers),
        )

    def _cpu_s(self, processes: list[Process]) -> float:
        """CPU time so far, those that have ended included: it never falls."""
        for process in processes:
            self._ticks[process.pid, process.started] = process.ticks
        return sum(self._ticks.values()) / _TICKS

    def shm_used(self, main: int) -> int:
        """Bytes of the patient's /dev/shm that were not in use when it was first looked at."""
        try:
            seen = os.statvfs(f"/proc/{main}/root/dev/shm")
        except OSError:
            return 0
        used = (seen.f_blocks - seen.f_bfree) * seen.f_frsize
        if self._shm_base is None:
            self._shm_base = used
        return max(0, used - self._shm_base)

    def _weight(self, pid: int) -> Weight:
        return self._weights.get(pid, Weight())

    def _weigh_slowly(self, main: int, processes: list[Process]) -> None:
        self._weights = {process.pid: weight(process.pid) for process in processes[:_MOST]}
        for process in processes[:_MOST]:
            maps = slurp(f"/proc/{process.pid}/maps", 16 << 20)
            if process.pid == main:
                self._maps = maps.count("\n")
            if _SHM_MAP in maps:
                self.shm_names |= shared_names(maps)


class Burden:
    """Bytes of all processes together, without double counting: exact now and then, near it in between."""

    def __init__(self) -> None:
        self._exact_at = 0.0
        self._shared = 0  # what the sum of resident sizes counts more than once

    def weigh(self, at: float, processes: list[Process], *, doubt: int) -> int:
        """The sum at time `at`. Below `doubt` an upper bound is good enough, above twice that nothing is."""
        most = sum(rss(process.pid) for process in processes)
        if most < doubt:
            return most
        # Workers that were forked since then share nearly all: what looks like too much is weighed at once.
        if at >= self._exact_at or most - self._shared >= 2 * doubt:
            self._shared = max(0, most - sum(weight(process.pid).pss for process in processes))
            self._exact_at = at + max(2 * SAMPLE_S, (time.monotonic() - at) / SLOW_SHARE)
        return most - self._shared


def is_worker(process: Process) -> bool:
    """Whether it is a worker of torch's loader, by its name."""
    return process.name == WORKER_NAME


def weight(pid: int) -> Weight:
    """Weigh one process."""
    fields: dict[str, int] = {}
    for line in slurp(f"/proc/{pid}/smaps_rollup").splitlines()[1:]:
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            fields[name] = int(words[0]) * 1024
    return Weight(
        pss=fields.get("Pss", 0), uss=fields.get("Private_Clean", 0) + fields.get("Private_Dirty", 0)
    )


def waits_in(pid: int) -> str:
    """The kernel's function in which its main thread waits; empty when it runs."""
    text = slurp(f"/proc/{pid}/wchan").strip()
    return "" if text == "0" else text


def rss(pid: int) -> int:
    """Resident bytes of a process."""
    words = slurp(f"/proc/{pid}/statm").split()
    return int(words[1]) * _PAGE if len(words) > 1 else 0


def descriptors(pid: int) -> int:
    """How many descriptors it has open."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - a count, often
    except OSError:
        return 0


def shared_names(maps: str) -> set[str]:
    """Names in /dev/shm that stand in a list of mappings and still exist."""
    names = set()
    for line in maps.splitlines():
        _, found, name = line.partition(_SHM_MAP)
        if found and not name.endswith(" (deleted)"):
            names.add(name)
    return names


def exit_status(process: Process) -> int | None:
    """How a process ended that nobody has read yet, as Python says it; None for a living one."""
    if process.is_alive:
        return None
    return os.waitstatus_to_exitcode(process.exit_code)
