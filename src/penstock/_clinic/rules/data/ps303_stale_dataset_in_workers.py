"""PS303 stale-dataset-in-workers

## What it finds
An attribute of the dataset that the program changes between epochs and that persistent workers never see.

## Why it matters
Persistent workers keep the copy of the dataset with which they were started. `dataset.set_epoch(…)`, a new
transform, a harder curriculum: the program sets them in its own copy, and every epoch is like the first.

## How we know
The attributes of the dataset in the consumer are compared with what they were when the workers got it. The
contents of samples in later epochs are those of the first, index by index. The experiment gives workers the
new values at the start of each epoch; then contents change.

## What to do
Leave `persistent_workers` out, or keep the value where workers see it: `multiprocessing.Value`, or a tensor
after `share_memory_()`.

## When we stay silent
Without persistent workers; when nothing was changed; when contents do not change with the attribute.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic import amounts
from penstock._clinic.contents import Compared, compare, readings
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Confidence, Evidence, Experiment, Finding, Prescription
from penstock._clinic.inflight import set_option
from penstock._clinic.naming import loader_named, option
from penstock._lab.plan import Change
from penstock._lab.record import IteratorSeen, LoaderSeen, Trial

# Samples that must have been read in two epochs before anything is said of them.
FEW = 2
# Where a value is set, not used.
_SETTERS = frozenset({"__init__", "__len__", "__repr__", "__str__", "__post_init__"})


class StaleDatasetInWorkers:
    """Persistent workers do not see what the program changes."""

    code: ClassVar[str] = "PS303"
    cause: ClassVar[str] = "stale-dataset-in-workers"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose workers have an old dataset."""
        trial = facts.observed
        if trial is None:
            return
        for loader in facts.loaders:
            later = next((seen for seen in trial.of(loader.key) if seen.changed), None)
            if later is None or not later.changed:
                continue
            compared = _compared(trial, loader)
            used = _used(facts, loader, later)
            # Contents that change from epoch to epoch are random, or the workers do see it: then only the
            # source can tell that samples depend on the attribute.
            if (compared.both >= FEW and not compared.differ) or used:
                yield self._finding(loader, later, compared, used)

    def _finding(
        self, loader: LoaderSeen, later: IteratorSeen, compared: Compared, used: tuple[str, ...]
    ) -> Finding:
        path = (used or tuple(later.changed))[0]
        confidence: Confidence = "observed" if used else "suspected"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=(
                f"persistent workers of {loader_named(loader)} do not see that the program changed `{path}` "
                f"({later.changed[path]}): they keep the dataset of the first epoch"
            ),
            prescription=Prescription(
                change=(
                    f"{option(loader, 'persistent_workers', value=False)}, or keep `{path}` where workers "
                    "see it (`multiprocessing.Value`, a tensor after `share_memory_()`)"
                ),
                expect="each epoch is made with the values that the program set for it",
                fix=set_option(loader, "persistent_workers", value=False),
            ),
            evidence=tuple(_evidence(later, compared, used)),
            where=loader.dataset.site or loader.site,
            loader=loader.key,
            confidence=confidence,
            experiments=(
                Experiment(
                    title="the same program, workers given the new values in each epoch",
                    change=Change(mends=("fresh-attributes",)),
                    drive="script",
                ),
                Experiment(
                    title="the same program with persistent_workers=False",
                    change=Change(settings={"persistent_workers": False}),
                    drive="script",
                ),
            ),
        )


def _compared(trial: Trial, loader: LoaderSeen) -> Compared:
    """The first epoch against the later ones, by index."""
    first, *rest = readings(trial, loader.key) or [{}]
    told = [compare(first, later) for later in rest]
    return Compared(sum(each.both for each in told), sum(each.differ for each in told))


def _used(facts: Facts, loader: LoaderSeen, later: IteratorSeen) -> tuple[str, ...]:
    """Changed attributes that the dataset's class reads where it makes samples."""
    read = _read_names(facts, loader.dataset.type.rpartition(".")[2])
    return tuple(path for path in later.changed if path.rpartition(".")[2] in read)


def _read_names(facts: Facts, name: str) -> frozenset[str]:
    """Attributes of `self` that the methods of a class read, but for those that only set it up."""
    files = facts.source.files if facts.source is not None else ()
    nodes = (node for file in files for node in ast.walk(file.tree))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name]
    return frozenset(
        node.attr
        for each in classes
        for method in each.body
        if isinstance(method, ast.FunctionDef) and method.name not in _SETTERS
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and _is_self(node.value)
    )


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _evidence(later: IteratorSeen, compared: Compared, used: tuple[str, ...]) -> Iterator[Evidence]:
    for path in (used or tuple(later.changed))[:3]:
        yield Evidence(f"`{path}` in the consumer", later.changed[path], "observed run")
    if compared.both:
        same = compared.both - compared.differ
        value = f"{same:,} of {compared.both:,} as in the first"
        yield Evidence("contents of samples in later epochs", value, "samples")
    if used:
        yield Evidence("read where samples are made", amounts.listed(used), "dataset's class")
