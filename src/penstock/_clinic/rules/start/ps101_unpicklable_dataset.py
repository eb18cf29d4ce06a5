"""PS101 unpicklable-dataset

## What it finds
A dataset, `collate_fn`, `worker_init_fn` or sampler that cannot be pickled, in a loader whose workers are
started by spawn or forkserver: a lambda, a local function or class, a lock, an open file, a generator, a
database handle.

## Why it matters
Such workers get everything as a pickle. The program stops at `iter(loader)`, before the first batch; under
fork it works, so it often appears only on another system or with Python 3.14.

## How we know
Pickle's own refusal while the workers were started, and a walk over the attributes of what they get, each
pickled by itself: it names the attribute and its type. The same loader under fork is the proof.

## What to do
Give workers what can be shipped: a function at module level in the place of a lambda, a handle that each
worker opens when it first needs it. Or keep fork where that is possible.

## When we stay silent
Under fork nothing is pickled: a lambda in a dataset is then no finding at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import StartTrouble, cases, method_of, start_trouble
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription
from penstock._clinic.naming import loader_named, method, short
from penstock._clinic.trying import ours, under
from penstock._lab.record import LoaderSeen, Thing

# What is open in the parent cannot travel; the other kinds are definitions that only need another place.
_HANDLES = frozenset(
    {
        "open-file",
        "mapping",
        "socket",
        "lock",
        "thread",
        "generator",
        "database",
        "archive",
        "hdf5",
        "lmdb",
        "client",
    }
)
_FUNCTIONS = frozenset({"lambda", "local-function"})
_CLASSES = frozenset({"local-class", "main-class"})
_NOUNS = {
    "lambda": "a lambda",
    "local-function": "a function defined inside another",
    "local-class": "an object of a class defined inside a function",
    "open-file": "an open file",
    "mapping": "a memory mapping",
    "lock": "a lock",
    "generator": "a generator",
    "socket": "a socket",
    "thread": "a thread",
    "database": "a database connection",
    "archive": "an open archive",
    "hdf5": "an open HDF5 file",
    "lmdb": "an open LMDB environment",
    "module": "a module",
    "thread-local": "a thread-local",
    "client": "a client with connections of its own",
}


class UnpicklableDataset:
    """Workers that are not forked cannot be given what they need."""

    code: ClassVar[str] = "PS101"
    cause: ClassVar[str] = "unpicklable-dataset"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for the loader that could not start."""
        for case in cases(facts):
            trouble = start_trouble(case.trial)
            how = method_of(case.trial, case.loader)
            if how == "fork" or case.is_caught or trouble is None or trouble.cause != self.cause:
                continue
            yield self._finding(case.loader, trouble, how, case.failure.at_s)
            return

    def _finding(self, loader: LoaderSeen | None, trouble: StartTrouble, how: str, at_s: float) -> Finding:
        thing = _culprit(loader, trouble)
        site = (thing.site if thing else None) or (loader.site if loader else None) or trouble.site
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=_message(loader, thing, trouble, how),
            prescription=_prescription(thing),
            evidence=_evidence(thing, trouble, how),
            where=site,
            loader=loader.key if loader else None,
            confidence="observed",
            experiments=(under("fork"),),
            remedy=ours(),
            stopped_at_s=at_s,
        )


def _culprit(loader: LoaderSeen | None, trouble: StartTrouble) -> Thing | None:
    """The thing that refuses: the one whose refusal was heard, else the first."""
    refused = [thing for thing in (loader.things if loader else ()) if thing.pickles is False]
    heard = [thing for thing in refused if thing.error and short(thing.error) in trouble.text]
    return next(iter(heard or refused), None)


def _message(loader: LoaderSeen | None, thing: Thing | None, trouble: StartTrouble, how: str) -> str:
    if thing is None:
        said = short(trouble.text)
        return f"workers of {loader_named(loader)} start by {how}, and pickle refuses what they need: {said}"
    noun = _NOUNS.get(thing.kind, f"of type `{thing.type}`")
    named = loader_named(loader)
    return f"`{thing.path}` is {noun} and cannot be pickled, so {named} cannot start workers by {how}"


def _evidence(thing: Thing | None, trouble: StartTrouble, how: str) -> tuple[Evidence, ...]:
    found = [
        Evidence("start method", how, "settings"),
        Evidence("what pickle said", short(f"{trouble.type}: {trouble.text}"), "observed run"),
    ]
    if thing is not None:
        found.insert(0, Evidence("what does not pickle", f"{thing.path} ({thing.type})", "observed run"))
    return tuple(found)


def _prescription(thing: Thing | None) -> Prescription:
    expect = "workers start by spawn and forkserver as by fork"
    if thing is None:
        return Prescription("keep only picklable things in the dataset, or " + method(None, "fork"), expect)
    if thing.kind in _FUNCTIONS:
        change = f"replace `{thing.path}` by a function at module level (functools.partial for its arguments)"
        return Prescription(change, expect, fix=Fix("lambda-to-function", thing.site, {"path": thing.path}))
    if thing.kind in _CLASSES:
        change = f"move the class of `{thing.path}` to module level"
        return Prescription(change, expect, fix=Fix("move-class", thing.site, {"path": thing.path}))
    if thing.kind in _HANDLES:
        change = (
            f"make `{thing.path}` in each worker, when it is first used, and leave it out in __getstate__"
        )
        return Prescription(change, expect, fix=Fix("lazy-open", thing.site, {"path": thing.path}))
    return Prescription(
        f"leave `{thing.path}` out of what workers get, or make it in `worker_init_fn`", expect
    )
