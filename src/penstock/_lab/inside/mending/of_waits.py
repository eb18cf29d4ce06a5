"""Mends of waits."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

from penstock._lab.inside.mending.mend import Getting, Mend, OfStreams

_DEADLINE_S = 2.0  # far above what a sample takes, far below what a stuck program is given
_AGAIN_S = 0.5  # for code that catches everything and tries again
_TRIED = 3  # indices that are tried in place of a stuck one, each with a deadline of its own


class LateError(BaseException):
    """The deadline has passed. No Exception, so that a loop that retries on errors does not catch it."""


class SampleDeadline(Mend, Getting, OfStreams):
    """A sample that is waited for too long is given up, and another takes its place.

    An alarm ends any wait of the main thread that a signal can end: for a socket, a pipe, a file lock, a
    child, a lock of Python's, and a loop that sleeps.
    """

    name: ClassVar[str] = "sample-deadline"

    def get(self, inner: Any, index: Any) -> Any:
        """The sample, or one after it."""
        others = range(index + 1, index + _TRIED) if isinstance(index, int) else ()
        for each in (index, *others):
            with contextlib.suppress(LateError), _deadline():
                return inner(each)
        raise TimeoutError(f"no sample came within {_DEADLINE_S:g} s")

    def next_of(self, stream: Any) -> Any:
        """The next sample; a stream that is stuck cannot be asked for another."""
        try:
            with _deadline():
                return next(stream)
        except LateError:
            raise TimeoutError(f"no sample came within {_DEADLINE_S:g} s") from None


@contextlib.contextmanager
def _deadline() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are for the main thread
        return
    before = signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, _DEADLINE_S, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _late(*_: Any) -> None:
    raise LateError
