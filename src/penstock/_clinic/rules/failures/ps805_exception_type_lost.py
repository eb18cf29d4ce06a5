"""PS805 exception-type-lost

## What it finds
An exception that leaves a worker under another type: torch builds it again from one text, which fails for
types whose constructor wants more, and raises RuntimeError instead.

## Why it matters
`except HTTPError:` in the training loop works with num_workers=0 and never fires with workers.

## How we know
The type raised in the worker and the type that reached the program. It is an error where the program's own
source has an `except` for the type that was lost, by its name or by a variable that may hold it; else an info
beside the exception itself.

## What to do
Give the exception a constructor that accepts one text, or catch RuntimeError and look at its text; or handle
the exception in the dataset.

## When we stay silent
When the type arrives, and at num_workers=0.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import ECHOES, bare, claimed_by, is_reraised, wrapped_as
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.naming import place, sample_named
from penstock._clinic.source import Source
from penstock._clinic.trying import ours
from penstock._lab.plan import Change
from penstock._lab.record import Failure, Site, Trial

_RAISED_INSTEAD = "RuntimeError"
# `except Exception` catches what arrives instead just as well; so does what RuntimeError derives from.
_CATCH_ALL = frozenset({"Exception", "BaseException", "RuntimeError"})
# Calls that ask what an exception is; no `except` gets its types from them.
_ASKS = frozenset({"isinstance", "issubclass", "type", "print"})
# Types of the standard library that want more than a text, and what they can be caught as.
_STANDARD_BASES: dict[str, tuple[str, ...]] = {
    "HTTPError": ("URLError", "OSError", "IOError"),
    "CalledProcessError": ("SubprocessError",),
    "TimeoutExpired": ("SubprocessError",),
    "UnicodeDecodeError": ("UnicodeError", "ValueError"),
    "UnicodeEncodeError": ("UnicodeError", "ValueError"),
    "JSONDecodeError": ("ValueError",),
}


class ExceptionTypeLost:
    """The program never sees the type that its own `except` waits for."""

    code: ClassVar[str] = "PS805"
    cause: ClassVar[str] = "exception-type-lost"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding where torch had to raise another type."""
        trial = facts.observed
        for heard in trial.failures if trial is not None else ():
            name = _lost(trial, heard) if trial is not None and heard.phase in ECHOES else None
            if trial is not None and name is not None and claimed_by(heard) is None:
                yield self._finding(facts, trial, heard, name)
                return

    def _finding(self, facts: Facts, trial: Trial, heard: Failure, name: str) -> Finding:
        origin = next((each for each in trial.failures if bare(each.type) == name), heard)
        catcher, waited = _catcher(facts.source, name)
        is_fatal = trial.outcome != "ok"
        index = sample_named(origin.index)
        waits = f", so `except {waited}` at {place(catcher)} never fires" if catcher else ""
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error" if catcher and is_fatal else "info",
            message=f"{name} raised for {index} in a worker reaches the program as {bare(heard.type)}{waits}",
            prescription=Prescription(
                f"give {name} a constructor that accepts one text, or catch it in the dataset",
                f"`except {waited}` works with workers as without",
                fix=Fix("module-level-exception", origin.site, {"name": name, "one_text": True}),
            ),
            evidence=(
                Evidence("type in the worker", origin.type, "observed run"),
                Evidence("type in the program", heard.type, "observed run"),
                Evidence(
                    f"`except {waited}` in the program",
                    place(catcher) or "none",
                    "source" if catcher else "observed run",
                ),
            ),
            where=catcher or origin.site,
            loader=heard.loader,
            experiments=(
                Experiment(
                    "the program with num_workers=0", Change(settings={"num_workers": 0}), drive="script"
                ),
            ),
            remedy=ours(),
            stopped_at_s=heard.at_s if catcher and is_fatal else None,
        )


def _lost(trial: Trial, heard: Failure) -> str | None:
    """The type that a worker raised, where another reached the program."""
    name = wrapped_as(heard)
    if name is not None:
        return bare(name) if bare(heard.type) == _RAISED_INSTEAD != bare(name) else None
    if not is_reraised(heard):  # building it again failed in its own way
        return None
    origin = next((each for each in trial.failures if each.phase not in ECHOES), None)
    return bare(origin.type) if origin is not None and bare(origin.type) != bare(heard.type) else None


def _catcher(source: Source | None, name: str) -> tuple[Site | None, str]:
    """The `except` that waits for a type, by its name or by a variable, and what stands there."""
    trees = [file.tree for file in source.files] if source else []
    is_handed = any(name in _handed(tree) for tree in trees)
    found: list[tuple[bool, Site, str]] = []
    for file in source.files if source else ():
        names = {name, *_STANDARD_BASES.get(name, ()), *_bases(file.tree, name)}
        for node in ast.walk(file.tree):
            if not isinstance(node, ast.ExceptHandler) or node.type is None:
                continue
            if names & _names(node.type):
                found.append((False, Site(file.path, node.lineno), name))
            elif is_handed and not any(_is_class_name(each) for each in _names(node.type)):
                found.append((True, Site(file.path, node.lineno), ast.unparse(node.type)))
    found.sort(key=lambda each: each[0])
    return found[0][1:] if found else (None, name)


def _is_class_name(name: str) -> bool:
    """Whether a name is written as classes are: `IOError`, not `errors` and not `SKIPPED`."""
    return name[:1].isupper() and not name.isupper()


def _handed(tree: ast.Module) -> set[str]:
    """The names that a program hands on as values: as arguments, in tuples, to variables."""
    found: set[str] = set()
    for node in ast.walk(tree):
        values: list[ast.expr | None] = []
        if isinstance(node, ast.Call) and not _names(node.func) & _ASKS:
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            values = [*node.elts]
        elif isinstance(node, ast.Dict):
            values = [*node.keys, *node.values]
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return)):
            values = [node.value]
        elif isinstance(node, ast.arguments):
            values = [*node.defaults, *node.kw_defaults]
        for value in values:
            found |= _names(value) if isinstance(value, (ast.Name, ast.Attribute)) else set()
    return found


def _bases(tree: ast.Module, name: str) -> set[str]:
    """The classes of the program that a class of the program derives from, by name."""
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found: set[str] = set()
    todo = [name]
    while todo:
        node = classes.get(todo.pop())
        direct = {each.id for each in (node.bases if node else ()) if isinstance(each, ast.Name)}
        todo += sorted(direct - found)
        found |= direct
    return found - _CATCH_ALL


def _names(node: ast.expr | None) -> set[str]:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return names | {part.attr for part in parts if isinstance(part, ast.Attribute)}
