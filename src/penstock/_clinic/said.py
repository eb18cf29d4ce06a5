"""What a program has said: exceptions that the observer caught, then what it printed. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock._clinic.facts import Facts
from penstock._lab.record import Failure, LoaderSeen, Trial

_LONGEST = 200  # characters of a line that is quoted


@dataclass(frozen=True, slots=True)
class Said:
    """A line that matters, and the exception that it belongs to, if it was caught."""

    line: str
    trial: Trial
    failure: Failure | None = None

    @property
    def source(self) -> str:
        """Where the line comes from, as evidence names it."""
        if self.failure is None:
            return "standard error"
        if self.failure.worker is None or self.failure.worker < 0:
            return "the consumer"
        return f"worker {self.failure.worker}"


def said(trial: Trial, pattern: re.Pattern[str]) -> Said | None:
    """The first line that fits: of an exception, else of standard error."""
    for failure in trial.failures:
        line = line_with(f"{failure.type}: {failure.text}\n{failure.traceback}", pattern)
        if line:
            return Said(line, trial, failure)
    line = line_with(trial.stderr, pattern)
    return Said(line, trial) if line else None


def first_said(facts: Facts, pattern: re.Pattern[str]) -> Said | None:
    """The first line that fits, in the observed run, else on the ladder."""
    for trial in facts.trials:
        found = said(trial, pattern)
        if found is not None:
            return found
    return None


def line_with(text: str, pattern: re.Pattern[str]) -> str:
    """The whole line in which the pattern is found, shortened; empty where it is not."""
    found = pattern.search(text)
    if found is None:
        return ""
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    line = text[start : end if end >= 0 else None].strip()
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def loader_of(facts: Facts, trial: Trial, failure: Failure | None = None) -> LoaderSeen | None:
    """The loader that a failure or a hang is about: its own, the one waited for, or the only one at work."""
    key = failure.loader if failure is not None else None
    key = key or trial.plan.loader or _waiting(trial) or _busy(trial)
    for seen in (*facts.loaders, *trial.loaders):
        if seen.key == key:
            return seen
    return None


def _waiting(trial: Trial) -> str | None:
    return next((seen.loader for seen in trial.iterators if seen.waiting_since_s is not None), None)


def _busy(trial: Trial) -> str | None:
    """The loader whose pass was the last not to end well, or the last with workers."""
    for seen in reversed(trial.iterators):
        if seen.end in {"raised", "open"}:
            return seen.loader
    with_workers = [seen.key for seen in trial.loaders if seen.settings.get("num_workers")]
    return with_workers[-1] if with_workers else None
