"""PS105 start-method-changed

## What it finds
A program that works when workers are forked, and fails because they are not: although the loader asks for no
start method. Python 3.14 made forkserver the default on Linux; a library or a line elsewhere may set another.

## Why it matters
Nothing in the program has changed and it no longer starts: lambdas, open files, classes under the guard and
globals that `main()` sets all relied on fork.

## How we know
The start method in force, the loader's own options, the calls of `set_start_method` in the source, and the
failure; the same loader under fork is the proof.

## What to do
Make what workers get picklable (see the finding beside this one), or say which start method is meant:
`multiprocessing_context="fork"`.

## When we stay silent
When the loader names its start method, when the program sets spawn itself, and when nothing fails.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import Case, cases, method_of, start_trouble
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription, Severity
from penstock._clinic.naming import loader_named, method, place, short
from penstock._clinic.source import Source
from penstock._clinic.trying import ours, under
from penstock._lab.record import Site

_SETTERS = frozenset({"set_start_method", "get_context"})


class StartMethodChanged:
    """Workers are no longer forked, and the program relied on that."""

    code: ClassVar[str] = "PS105"
    cause: ClassVar[str] = "start-method-changed"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding where a start method that the loader did not ask for makes it fail."""
        for case in cases(facts):
            how = method_of(case.trial, case.loader)
            if how == "fork" or case.is_caught or not _was_left_open(case) or not _fails_for_it(case):
                continue
            setter = _setter(facts.source)
            # Who sets spawn for the whole program means it; forkserver is what Python 3.14 does by itself.
            if setter is not None and how == "spawn":
                continue
            yield self._finding(case, how, setter, facts.host.python)
            return

    def _finding(self, case: Case, how: str, setter: Site | None, python: str) -> Finding:
        who = f"set at {place(setter)}" if setter else f"the default of Python {python}".rstrip()
        loader = case.loader
        return Finding(
            code=self.code,
            cause=self.cause,
            severity=_severity(case, setter),
            message=(
                f"{loader_named(loader)} names no start method and gets {how} ({who}), but the program relies"
                f" on fork: {short(f'{case.failure.type}: {case.failure.text}', 90)}"
            ),
            prescription=Prescription(
                method(loader, "fork") + ", or make what workers get picklable",
                "workers start and inherit what the program has set up",
                fix=Fix("set-option", loader.site if loader else None, {"multiprocessing_context": "fork"}),
            ),
            evidence=(
                Evidence("start method in force", f"{how} ({who})", "host"),
                Evidence("multiprocessing_context", "not given", "settings"),
                Evidence("failure", short(f"{case.failure.type}: {case.failure.text}"), "observed run"),
            ),
            where=loader.site if loader else None,
            loader=loader.key if loader else None,
            experiments=(under("fork"),),
            remedy=ours(),
            stopped_at_s=case.failure.at_s,
        )


def _severity(case: Case, setter: Site | None) -> Severity:
    """Who sets it in the program may mean it: then what workers cannot get is the fault, and told first."""
    if setter is None:
        return "error"
    return "warning" if start_trouble(case.trial) is None else "info"


def _was_left_open(case: Case) -> bool:
    loader = case.loader
    if loader is None or case.trial.plan.change.settings.get("multiprocessing_context"):
        return False
    return "multiprocessing_context" not in loader.explicit or not loader.settings.get(
        "multiprocessing_context"
    )


def _fails_for_it(case: Case) -> bool:
    """Whether workers could not start, or miss in a sample what they would have inherited."""
    return start_trouble(case.trial) is not None or (
        case.passes_at_zero and case.failure.phase in {"sample", "init"}
    )


def _setter(source: Source | None) -> Site | None:
    """The first call in the program's own source that chooses a start method for all of it."""
    for file in source.files if source else ():
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Call) and _called(node) in _SETTERS:
                return Site(file.path, node.lineno)
    return None


def _called(node: ast.Call) -> str:
    target = node.func
    return (
        target.attr
        if isinstance(target, ast.Attribute)
        else target.id
        if isinstance(target, ast.Name)
        else ""
    )
