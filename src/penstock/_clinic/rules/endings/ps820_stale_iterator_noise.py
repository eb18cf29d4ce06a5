"""PS820 stale-iterator-noise

## What it finds
A program that prints `AssertionError: can only test a child process`.

## Why it matters
It is harmless, but looks like a failure: an iterator that was still alive when other workers were forked is
cleared up in them, where its workers are not children. It also says that an old iterator, with its workers,
was kept alive: by a variable, or by an exception whose traceback holds it.

## How we know
The message. The experiment runs the program with our loader, whose iterators do nothing in other processes.

## What to do
Let go of the old iterator before the next loop (`del iterator`), do not keep exceptions with their
tracebacks.

## When we stay silent
When the message was not printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._clinic.said import Said, loader_of, said
from penstock._lab.plan import Change

NOISE = re.compile(r"can only test a child process")


class StaleIteratorNoise:
    """An old iterator is cleared up in processes that do not know it."""

    code: ClassVar[str] = "PS820"
    cause: ClassVar[str] = "stale-iterator-noise"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding when the message was printed."""
        heard = said(facts.observed, NOISE) if facts.observed else None
        if heard is not None:
            yield self._finding(facts, heard)

    def _finding(self, facts: Facts, heard: Said) -> Finding:
        loader = loader_of(facts, heard.trial, heard.failure)
        times = len(NOISE.findall(heard.trial.stderr))
        live = max((seen.live_iterators for seen in heard.trial.iterators), default=0)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="observed",
            message="an iterator that was alive when workers were started is cleared up in them, with noise",
            where=loader.site if loader else None,
            loader=loader.key if loader else None,
            evidence=(
                Evidence("message", f"{heard.line}, {max(1, times)} times", "standard error"),
                *((Evidence("iterators alive at a start", str(live), "observed run"),) if live else ()),
            ),
            prescription=Prescription(
                change="del the old iterator, and exceptions that hold it, before the next loop",
                expect="nothing is printed, and the old workers end in time",
            ),
            experiments=(
                Experiment(
                    title="the program with our loader, whose iterators do nothing in other processes",
                    change=Change(use_penstock=True),
                    measure="silent",
                    drive="script",
                ),
            ),
        )
