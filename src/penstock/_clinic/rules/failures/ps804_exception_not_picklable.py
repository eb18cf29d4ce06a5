"""PS804 exception-not-picklable

## What it finds
An exception raised in a worker whose type cannot be pickled: defined inside a function, or not found under
its own name.

## Why it matters
The worker wants to report its error, the report cannot be sent, and is dropped. Instead of an error the
program waits for ever.

## How we know
The dataset's exception, seen in the worker; the feeder thread's traceback that refuses its type; and stacks:
every worker idle, the program waiting. At num_workers=0 the exception itself comes.

## What to do
Define the exception at module level, or raise a RuntimeError from it. And look at the sample that raised.

## When we stay silent
When the exception arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import bare, fed, refuses, unsent
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription
from penstock._clinic.hang import judge
from penstock._clinic.naming import at_place, sample_named, short
from penstock._clinic.trying import mended, ours, with_workers
from penstock._lab.record import Failure, Trial


class ExceptionNotPicklable:
    """An error that cannot be told."""

    code: ClassVar[str] = "PS804"
    cause: ClassVar[str] = "exception-not-picklable"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding where a feeder refused the type of an exception."""
        trial = facts.observed
        if trial is None or trial.outcome == "ok":
            return
        for refused in fed(trial):
            failure = unsent(trial, refused) if refuses(f"{refused.type}: {refused.text}") else None
            if failure is not None:
                yield self._finding(trial, failure, refused.text)
                return

    def _finding(self, trial: Trial, failure: Failure, said: str) -> Finding:
        hang = judge(trial)
        name = bare(failure.type)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=(
                f"{sample_named(failure.index)} raises {name}{at_place(failure.site)}, a type that cannot be"
                " pickled: the error never arrives, and the program waits for ever"
            ),
            prescription=Prescription(
                f"define {name} at module level, or raise RuntimeError(str(error)) from it",
                f"the program ends with {name}: {short(failure.text, 60)}".removesuffix(": "),
                fix=Fix("module-level-exception", failure.site, {"name": name}),
            ),
            evidence=(
                Evidence("exception in the worker", short(f"{failure.type}: {failure.text}"), "observed run"),
                Evidence("sample", sample_named(failure.index), "observed run"),
                Evidence("what the feeder thread said", short(said), "observed run"),
            ),
            where=failure.site,
            loader=failure.loader or (hang.loader if hang else None),
            experiments=(
                mended(
                    "plain-exceptions", "exceptions of workers sent as RuntimeError", brings="RuntimeError"
                ),
                with_workers(0),
            ),
            remedy=ours(),
            stopped_at_s=hang.since_s if hang else failure.at_s,
        )
