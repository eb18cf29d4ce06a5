"""PS103 class-not-importable

## What it finds
A dataset (or anything that goes to workers) whose class a fresh interpreter cannot import: defined in a
notebook, under the `__main__` guard, in a script read from stdin, or in a module loaded by hand.

## Why it matters
Pickle ships a class by its name. A worker started by spawn or forkserver looks that name up, does not find
it, and ends; the program says only that a worker exited unexpectedly.

## How we know
The worker's own traceback names the class or module that it did not find. The same loader under fork is the
proof.

## What to do
Move the class to the top level of a module that workers can import.

## When we stay silent
Under fork, and where the class is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import StartTrouble, cases, method_of, start_trouble
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription
from penstock._clinic.naming import loader_named, short
from penstock._clinic.trying import ours, under
from penstock._lab.record import LoaderSeen


class ClassNotImportable:
    """Workers cannot find the class of what they are sent."""

    code: ClassVar[str] = "PS103"
    cause: ClassVar[str] = "class-not-importable"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding where a worker looked for a name in vain."""
        for case in cases(facts):
            trouble = start_trouble(case.trial)
            how = method_of(case.trial, case.loader)
            if how == "fork" or case.is_caught or trouble is None or trouble.cause != self.cause:
                continue
            yield self._finding(case.loader, trouble, how, case.failure.at_s)
            return

    def _finding(self, loader: LoaderSeen | None, trouble: StartTrouble, how: str, at_s: float) -> Finding:
        name = trouble.name or (loader.dataset.type if loader else "")
        named = f"`{name}`" if name else "the dataset's class"
        is_datasets = loader is not None and name == loader.dataset.type
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=f"workers of {loader_named(loader)} are started by {how} and cannot import {named}",
            prescription=Prescription(
                f"move {named} to the top level of a module that workers can import, outside any guard",
                f"workers find it under {how}",
                fix=Fix("move-class", loader.dataset.site if loader else None, {"name": name}),
            ),
            evidence=(
                Evidence("start method", how, "settings"),
                Evidence("what the worker said", short(f"{trouble.type}: {trouble.text}"), "observed run"),
            ),
            where=(loader.dataset.site if loader and is_datasets else None)
            or (loader.site if loader else None),
            loader=loader.key if loader else None,
            experiments=(under("fork"),),
            remedy=ours(),
            stopped_at_s=at_s,
        )
