"""PS812 worker-exited

## What it finds
A worker that ended by itself: `os._exit`, `sys.exit`, a KeyboardInterrupt raised in the dataset, a library
that ends the process; or one that somebody killed.

## Why it matters
These are no exceptions that torch reports. The program says "exited unexpectedly" (after five seconds when
the status was 0), or stops with a ConnectionResetError that tells nothing.

## How we know
The status with which the worker ended, the sample it had in hand, the exception that it left by. At
num_workers=0 the same ends the program itself.

## What to do
Let the dataset raise an ordinary exception instead of ending the process.

## When we stay silent
When workers could not start at all (PS101 to PS104), when a signal of native code ended them (PS811), when
memory ran out, and at the end of the program.
"""

from __future__ import annotations

import ast
import signal
from collections.abc import Iterator
from typing import Any, ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import bare, claimed_by, crash, start_trouble
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription
from penstock._clinic.naming import at_place, loader_named, place, sample_named
from penstock._clinic.source import Source
from penstock._clinic.trying import mended, without
from penstock._lab.record import Death, Failure, LoaderSeen, Site, Trial

_LEAVING = frozenset({"SystemExit", "KeyboardInterrupt", "GeneratorExit"})
_CALLS = frozenset({"_exit", "exit", "quit", "abort", "kill"})
_NATIVE = frozenset(
    -int(number) for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
)


class WorkerExited:
    """A process ended in the middle of a sample."""

    code: ClassVar[str] = "PS812"
    cause: ClassVar[str] = "worker-exited"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for the first process that left, by exception or without a word."""
        trial = facts.observed
        if trial is None or trial.outcome in {"ok", "oom"} or start_trouble(trial) is not None:
            return
        if _is_interrupted(trial):
            return
        left = _left(trial)
        death = crash(trial)
        if left is not None:
            yield self._finding(facts, trial, left.index, f"by {bare(left.type)}", left.site, left)
        elif death is not None and death.status not in _NATIVE and not _is_of_memory(trial, death):
            site = _exit_in(facts.source)
            yield self._finding(facts, trial, death.index, _how(death), site, death)

    def _finding(
        self, facts: Facts, trial: Trial, index: Any, how: str, site: Site | None, seen: Failure | Death
    ) -> Finding:
        loader = trial.loader(seen.loader or "") or next(iter(facts.loaders), None)
        who = "the program" if seen.worker is None else f"worker {seen.worker}"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=f"{who} of {loader_named(loader)} ended {how} at {sample_named(index)}{at_place(site)}",
            prescription=Prescription(
                "raise an ordinary exception in the dataset instead of ending the process",
                "the program gets an exception with its traceback, and can go on or stop",
                fix=Fix("raise-runtime-error", site),
            ),
            evidence=(
                Evidence("how it ended", how, "observed run"),
                Evidence("sample in hand", sample_named(index), "observed run"),
                Evidence("at num_workers=0", _at_zero(facts, loader), "ladder"),
                Evidence(
                    "line that ends the process", place(site) or "not known", "source" if site else "stacks"
                ),
            ),
            where=site or (loader.dataset.site if loader else None),
            loader=loader.key if loader else None,
            experiments=(
                mended("no-exits", "exits of the process turned into exceptions", brings="RuntimeError"),
                *without(index),
            ),
            stopped_at_s=seen.at_s,
        )


def _is_interrupted(trial: Trial) -> bool:
    """Whether the program itself was interrupted: then its workers were too, and none left by itself."""
    own = (each for each in trial.failures if each.worker is None and each.phase in {"next", "program"})
    return any(bare(each.type) == "KeyboardInterrupt" for each in own)


def _left(trial: Trial) -> Failure | None:
    for each in trial.failures:
        is_dataset = each.phase in {"sample", "collate", "init"}
        if is_dataset and bare(each.type) in _LEAVING and claimed_by(each) is None:
            return each
    return None


def _is_of_memory(trial: Trial, death: Death) -> bool:
    return death.status == -int(signal.SIGKILL) and (trial.host.oom_kills > 0 or trial.ended_by == "memory")


def _how(death: Death) -> str:
    if death.status is None:
        return "without a word"
    if death.status < 0:
        try:
            return f"by {signal.Signals(-death.status).name}"
        except ValueError:
            return f"by signal {-death.status}"
    return f"with status {death.status}"


def _at_zero(facts: Facts, loader: LoaderSeen | None) -> str:
    zero = facts.at(loader.key, 0) if loader else None
    if zero is None:
        return "not tried"
    if zero.outcome == "ok":
        return "loads"
    return f"the program ends with status {zero.status}"


def _exit_in(source: Source | None) -> Site | None:
    """The line inside a class that ends the process: what a dataset calls lives in one."""
    for file in source.files if source else ():
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef):
                found = next((call for call in ast.walk(node) if _is_exit(call)), None)
                if isinstance(found, ast.Call):
                    return Site(file.path, found.lineno, node.name)
    return None


def _is_exit(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    target = node.func
    name = (
        target.attr
        if isinstance(target, ast.Attribute)
        else target.id
        if isinstance(target, ast.Name)
        else ""
    )
    return name in _CALLS
