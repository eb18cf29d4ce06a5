"""How the program ends, and which warnings it shows.

The hooks of Python that the program may replace are called as they would be without us; we only listen.
"""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from typing import Any

from penstock._lab.inside.frames import failure
from penstock._lab.inside.log import Log
from penstock._lab.inside.quiet import lost, quiet

_MOST_WARNINGS = 100  # of one process
_MOST_TEXT = 500  # characters of a warning


class Endings:
    """Listens for what ends this process."""

    def __init__(self, log: Log, *, is_child: bool) -> None:
        """`is_child`: multiprocessing has started this process; then only its set-up can raise up to here."""
        self._log = log
        self._is_child = is_child
        self._pid = os.getpid()
        self._has_raised = False
        self._warned = 0
        self._said: set[str] = set()

    def install(self) -> None:
        """Take part in Python's hooks."""
        self._listen_to_exceptions()
        self._listen_to_warnings()
        atexit.register(self._at_exit)

    def _listen_to_exceptions(self) -> None:
        before = sys.excepthook

        def excepthook(kind: Any, error: Any, trace: Any) -> None:
            self.raised(error)
            before(kind, error, trace)

        sys.excepthook = excepthook

    def _listen_to_warnings(self) -> None:
        show = getattr(warnings, "_showwarnmsg", None)
        if show is None:
            return

        def show_and_tell(message: Any) -> None:
            self.warned(message)
            show(message)

        warnings._showwarnmsg = show_and_tell  # type: ignore[attr-defined]  # noqa: SLF001 - all warnings pass here

    @quiet
    def raised(self, error: BaseException) -> None:
        """An exception that nobody caught."""
        self._has_raised = True
        phase = "start" if self._is_child else "program"
        self._log.write("failed", **failure(error), phase=phase, is_fatal=not self._is_child)

    @quiet
    def warned(self, message: Any) -> None:
        """A warning is about to be shown."""
        text = str(message.message)[:_MOST_TEXT]
        if self._warned < _MOST_WARNINGS and text not in self._said:
            self._warned += 1
            self._said.add(text)
            self._log.write("warned", text=text, category=message.category.__name__)

    @quiet
    def _at_exit(self) -> None:
        if self._pid != os.getpid() or self._is_child:
            return
        error = getattr(sys, "last_value", None)
        if error is not None and not self._has_raised:
            self.raised(error)
        how = "raised" if self._has_raised else "returned"
        self._log.write("program", how=how, status=1 if self._has_raised else None, lost=lost)
