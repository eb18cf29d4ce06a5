"""PS816 pin-thread-died

## What it finds
A loader with `pin_memory=True` whose pinning thread ended by an exception of its own.

## Why it matters
The program sees "Pin memory thread exited unexpectedly" and not what happened: too many open files, a batch
that cannot be pinned, a CUDA error.

## How we know
The message of torch, and the exception of the thread where it was printed. The experiment runs the same
loader with `pin_memory=False`.

## What to do
Read the exception of the thread, which comes first in the output; `pin_memory=False` until it is repaired.

## When we stay silent
When no such message was seen. It needs an accelerator: without one torch starts no such thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.said import Said, first_said, loader_of
from penstock._lab.plan import Change

DIED = re.compile(r"Pin memory thread exited unexpectedly|in pin memory thread for device")
_IN_THREAD = re.compile(r"Caught (\w+) in pin memory thread")


class PinThreadDied:
    """The thread that pins batches has ended by an exception."""

    code: ClassVar[str] = "PS816"
    cause: ClassVar[str] = "pin-thread-died"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding when torch says that the thread is gone."""
        heard = first_said(facts, DIED)
        if heard is not None:
            yield self._finding(facts, heard)

    def _finding(self, facts: Facts, heard: Said) -> Finding:
        loader = loader_of(facts, heard.trial, heard.failure)
        own = _IN_THREAD.search(heard.line)
        reason = f" by {own.group(1)}" if own else ""
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            confidence="observed",
            message=f"the thread that pins batches ended{reason}",
            where=loader.site if loader else None,
            loader=loader.key if loader else None,
            evidence=(Evidence("message", heard.line, heard.source),),
            prescription=Prescription(
                change="pin_memory=True → pin_memory=False, until what the thread met is repaired",
                expect="batches come in ordinary memory",
                fix=Fix(
                    "set-option",
                    loader.site if loader else None,
                    {"option": "pin_memory", "old": True, "new": False},
                ),
            ),
            experiments=(
                Experiment(
                    title="the same loader with pin_memory=False",
                    change=Change(settings={"pin_memory": False}),
                ),
            ),
            stopped_at_s=heard.failure.at_s if heard.failure else None,
        )
