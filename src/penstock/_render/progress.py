"""What the doctor is doing, while it does it: one live line on a terminal, plain lines elsewhere.

Runs in the process of the command. On a terminal a thread of rich's redraws the line until `close`, which
also takes it away; a report printed afterwards stands alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import cycle
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock._render.words import plain, seconds

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
ASCII_SPINNER = "|/-\\"
REDRAWS = 8  # times a second

Clock = Callable[[], float]


class Progress:
    """Says sentences. As a context manager it clears its line at the end."""

    def __init__(self, console: Console, *, quiet: bool = False, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._quiet = quiet
        self._clock = clock
        self._began = clock()
        self._sentence = ""
        self._turns = cycle(SPINNER if console.encoding.startswith("utf") else ASCII_SPINNER)
        self._live: Live | None = None
        self._lock = threading.Lock()

    def say(self, sentence: str) -> None:
        """Tell what is being done now; from any thread, for two trials may begin at the same time."""
        with self._lock:
            self._say(sentence)

    def _say(self, sentence: str) -> None:
        self._sentence = plain(sentence)
        if self._quiet:
            return
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            text = Text(f"{seconds(self._clock() - self._began):>6}  {self._sentence}")
            self._console.print(text, soft_wrap=True)
        elif self._live is None:
            self._live = Live(
                console=self._console, get_renderable=self._line, transient=True, refresh_per_second=REDRAWS
            )
            self._live.start(refresh=True)
        else:
            self._live.refresh()

    def close(self) -> None:
        """Take the live line away. May be called twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _line(self) -> Text:
        """Spinner, sentence, seconds: one line, whatever the sentence."""
        elapsed = f" {seconds(round(self._clock() - self._began))}"
        sentence = Text(f" {self._sentence}")
        # One column stays free: a full line would wrap on some terminals.
        sentence.truncate(self._console.width - len(elapsed) - 2, overflow="ellipsis")
        return Text().append(next(self._turns), "cyan").append_text(sentence).append(elapsed, "dim")

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
