"""What is said of a worker that is gone: how it ended, what it was doing, and what to change. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

from penstock._engine import events
from penstock._engine.lookout import STALLED, stack_lines, where
from penstock.errors import WorkerLostError

_DIED_FIX = "load these samples at num_workers=0 to see the failure in the training process"
_KILLER_FIX = "load dataset[{!r}] by itself to see the failure; on_error='skip' goes on without it"
_OOM_FIX = "lower `num_workers`, `prefetch_factor` or `batch_size`, or raise the memory limit"


def worker_died(event: events.WorkerLost, indices: Any, position: int | None = None) -> WorkerLostError:
    """The error for a worker that is gone with work in its hands; `position` is of the sample that kills."""
    if event.pid == 0 and event.status > 0:
        return WorkerLostError(
            "PS603",
            f"workers cannot be started: the system refused to fork worker {event.worker}",
            why=f"errno {event.status}",
            fix="check free memory and the limit of processes (`ulimit -u`), or lower `num_workers`",
        )
    if event.reason == STALLED:
        what = "made no progress, and was ended"
    elif event.status < 0:
        what = f"is killed by signal: {signal.strsignal(-event.status)} ({_signal_name(-event.status)})"
    else:
        what = f"exited unexpectedly with exit code {event.status}"
    fix = _OOM_FIX if event.was_oom else _DIED_FIX
    if position is not None:
        fix = _KILLER_FIX.format(_at(indices, position))
    return WorkerLostError(
        "PS601",
        f"DataLoader worker {event.worker} (pid(s) {event.pid}) {what}",
        why="\n".join(["; ".join(_evidence(event, indices, position)), *stack_lines(event.stack)]),
        fix=fix,
    )


def few(indices: Any) -> str:
    """Sample indices, as many as fit on a line."""
    if isinstance(indices, (list, tuple)) and len(indices) > 8:  # noqa: PLR2004 - what fits on a line
        return f"{', '.join(map(str, indices[:8]))}, … ({len(indices)} in all)"
    return str(indices)


def _evidence(event: events.WorkerLost, indices: Any, position: int | None) -> Iterator[str]:
    if position is not None:
        yield f"so did its predecessors, at the same sample index {_at(indices, position)}"
    elif indices is not None:
        yield f"it was loading sample indices {few(indices)}"
    if event.phase and position is None:
        yield where(event, indices)
    if event.was_oom:
        yield "the kernel has killed a process here for want of memory since the workers were started"


def _at(indices: Any, position: int) -> Any:
    return indices[position] if isinstance(indices, (list, tuple)) else indices


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # most real-time signals have no name
