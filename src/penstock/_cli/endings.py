"""How a command that runs other programs ends early: as an exception, so that it ends them on its way out."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

BASE = 128  # a shell's status for an end by signal n is 128 + n
INTERRUPTED = BASE + signal.SIGINT
REQUESTS = (signal.SIGTERM, signal.SIGHUP)  # Ctrl-C is an exception already


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn requests to end into SystemExit for a while. Only in the main thread."""

    def leave(number: int, frame: FrameType | None) -> None:
        del frame
        sys.exit(BASE + number)

    before = {request: signal.signal(request, leave) for request in REQUESTS}
    try:
        yield
    finally:
        for request, old in before.items():
            signal.signal(request, old)
