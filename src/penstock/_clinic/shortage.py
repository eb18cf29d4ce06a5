"""Whether memory, or shared memory, ran out in a trial. Pure."""

from __future__ import annotations

import re
import signal

from penstock._clinic.failures import worker_deaths
from penstock._clinic.said import said
from penstock._lab.record import Failure, Trial

NO_MEMORY = re.compile(
    r"MemoryError|can't allocate memory|Cannot allocate memory|not enough memory|Unable to allocate"
)
NO_SHM = re.compile(
    r"unable to allocate shared memory|No space left on device|insufficient shared memory"
    r"|unable to write to file </torch"
)
_ASKED = re.compile(r"allocate (\d+(?:\.\d+)?) (bytes|[KMGTPE]iB)")
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_MAKING = frozenset({"sample", "collate", "feeder", "init"})

# Memory is looked at a few times a second, and what kills grows fast: seen this near, it was at the limit.
NEAR = 0.7


def is_out_of_memory(trial: Trial) -> bool:
    """Whether a process was killed, or failed, because memory ran out."""
    if trial.outcome == "oom" or trial.ended_by == "memory":
        return True
    killed = any(each.status == -signal.SIGKILL for each in worker_deaths(trial))
    return (killed and _was_short(trial)) or raised(trial) is not None


def _was_short(trial: Trial) -> bool:
    most = max((seen.tree_pss for seen in trial.vitals), default=0)
    return trial.host.oom_kills > 0 or 0 < trial.host.memory_limit * NEAR <= most


def raised(trial: Trial) -> Failure | None:
    """What a worker raised for want of memory; not for want of maps, which says the same."""
    most = max((seen.main_maps for seen in trial.vitals), default=0)
    if 0 < trial.host.max_map_count * NEAR <= most:
        return None
    for failure in trial.failures:
        is_workers = failure.phase in _MAKING and (failure.worker or 0) >= 0
        is_short = NO_MEMORY.search(f"{failure.type}: {failure.text}")
        # More at once than there is at all was there for nobody: a size that was read from wrong data.
        if is_workers and is_short and not 0 < trial.host.memory_limit <= _asked(failure.text):
            return failure
    return None


def _asked(text: str) -> int:
    """The bytes that numpy or torch could not get, as far as they say."""
    found = _ASKED.search(text)
    return int(float(found[1]) * 1024 ** _UNITS.index(found[2])) if found else 0


def is_out_of_shm(trial: Trial) -> bool:
    """Whether the program failed or hangs because /dev/shm was full."""
    killed = any(each.status == -signal.SIGBUS for each in worker_deaths(trial))
    return trial.outcome != "ok" and (killed or said(trial, NO_SHM) is not None)
