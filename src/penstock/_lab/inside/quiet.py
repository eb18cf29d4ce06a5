"""Our own mistakes stay ours: nothing that the observer does may raise into the program.

What a signal handler raises while our code happens to run is not our mistake, and goes on: torch tells of a
dead worker that way, and programs end a step after a time.

Nor does what we allocate decide when the program's garbage is collected: an old iterator in a cycle would be
gone before the next workers are forked, and the noise that it makes in them with it.
"""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

lost: list[str] = []  # what went wrong in us, in this process; told in the log
_MOST_LOST = 20

_pausing: set[int] = set()  # threads that have stopped the collector, and will start it again


def quiet(function: _F) -> _F:
    """Make a function return None where it would raise."""

    @functools.wraps(function)
    def hushed(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # the one place that swallows
            if _is_from_signal(error):
                raise
            if len(lost) < _MOST_LOST:
                lost.append(f"{function.__qualname__}: {type(error).__name__}: {_text(error)}")
            return None

    return hushed  # type: ignore[return-value] # the same signature


def uncollected(function: _F) -> _F:
    """Make a function, which must neither fork nor run long, one in which no garbage is collected."""

    @functools.wraps(function)
    def paused(*args: Any, **kwargs: Any) -> Any:
        if not gc.isenabled():
            return function(*args, **kwargs)
        here = threading.get_ident()
        _pausing.add(here)
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            gc.enable()
            _pausing.discard(here)

    return paused  # type: ignore[return-value] # the same signature


def forked() -> None:
    """In a child: a thread that paused the collector is not here to start it again."""
    if _pausing:
        _pausing.clear()
        gc.enable()


def _text(error: Exception) -> str:
    try:
        return str(error)[:200]
    except Exception:  # noqa: BLE001 - the user's own `__str__`
        return ""


def _is_from_signal(error: Exception) -> bool:
    """Whether one of the functions that the exception came through is a handler of signals."""
    import signal

    handlers = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        function = getattr(handler, "__func__", handler)
        handlers.add(getattr(function, "__code__", None))
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code in handlers:
            return True
        step = step.tb_next
    return False
