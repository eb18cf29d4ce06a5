"""PS801 dataset-raises

## What it finds
A dataset whose `__getitem__`, `__iter__` or `__len__` raises, with and without workers.

## Why it matters
It is the dataset's own bug, or a bad record; workers have no part in it. torch's message names neither the
sample nor, at first sight, the line.

## How we know
The exception came out of the dataset, and comes at num_workers=0 too, where nothing of multiprocessing is at
work. The index is what `__getitem__` was given.

## What to do
Look at that sample and that line. num_workers can stay as it is.

## When we stay silent
When a cause of its own explains the exception (a limit of the machine, a handle shared by workers), and when
it is collate that fails (PS802). An exception that the program catches and goes on from is an info.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import Case, bare, cases, claimed_by, method_of, start_trouble
from penstock._clinic.finding import Confidence, Evidence, Finding, Prescription
from penstock._clinic.naming import at_place, place, sample_named, short
from penstock._clinic.trying import mended

_PHASES = frozenset({"sample", "length", "init"})
# These do not report a mistake: they end a process or an epoch, and have rules of their own.
# Handles that fail in forked workers only: PS114 and PS115 speak of them.
_SHARED = frozenset({"open-file", "archive", "hdf5", "lmdb", "database", "socket", "client"})
# Repairs that make errors out of silence: what they bring is told by the finding that they prove.
_MENDS = frozenset(
    {"plain-exceptions", "no-exits", "sample-deadline", "socket-timeout", "stop-iteration-raises"}
)
_ENDINGS = frozenset({"SystemExit", "KeyboardInterrupt", "GeneratorExit", "StopIteration"})


class DatasetRaises:
    """The dataset itself raises."""

    code: ClassVar[str] = "PS801"
    cause: ClassVar[str] = "dataset-raises"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each exception that came out of the dataset."""
        for case in cases(facts):
            failure = case.failure
            if failure.phase not in _PHASES or bare(failure.type) in _ENDINGS:
                continue
            if claimed_by(failure) is None and start_trouble(case.trial) is None and not _has_root(case):
                yield self._finding(case)

    def _finding(self, case: Case) -> Finding:
        failure = case.failure
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="info" if case.is_caught else "error",
            message=_message(case),
            prescription=Prescription(
                f"look at {sample_named(failure.index)} and {place(failure.site) or 'the line that raises'}:"
                " the dataset must return it, or leave it out",
                "the error is gone with any number of workers",
            ),
            evidence=_evidence(case),
            where=failure.site,
            loader=case.loader.key if case.loader else None,
            confidence=_confidence(case),
            experiments=(mended("skip-raising", f"samples that raise {_instead(case)}"),),
            stopped_at_s=None if case.is_caught else failure.at_s,
        )


def _instead(case: Case) -> str:
    is_stream = case.loader is not None and case.loader.dataset.is_iterable
    return "left out" if is_stream else "replaced by others"


def _has_root(case: Case) -> bool:
    """Whether something else explains it: a handle that forked workers share, a repair of ours."""
    if _MENDS & set(case.trial.plan.change.mends):
        return True
    things = case.loader.things if case.loader else ()
    is_forked = case.workers > 0 and method_of(case.trial, case.loader) == "fork"
    return case.passes_at_zero and is_forked and any(thing.kind in _SHARED for thing in things)


def _message(case: Case) -> str:
    failure = case.failure
    what = {"length": "`__len__`", "init": "`worker_init_fn`"}.get(failure.phase, "the dataset")
    which = f" for {_sample(case)}" if failure.phase == "sample" else ""
    how = short(f"{bare(failure.type)}: {failure.text}".removesuffix(": "), 90)
    if case.is_caught:
        return f"{what} raises {how}{which}{at_place(failure.site)}, and the program goes on from it"
    also = ", with num_workers=0 too" if case.at_zero is not None else ""
    only = ", in workers only" if case.passes_at_zero else ""
    return f"{what} raises {how}{which}{at_place(failure.site)}{also}{only}"


def _sample(case: Case) -> str:
    """The sample; of a stream its number, for there is no index."""
    failure = case.failure
    if case.loader is None or not case.loader.dataset.is_iterable:
        return sample_named(failure.index)
    whose = "its stream" if case.workers == 0 else f"the stream of worker {failure.worker}"
    return f"{sample_named(failure.index)} of {whose}"


def _evidence(case: Case) -> tuple[Evidence, ...]:
    failure = case.failure
    found = [
        Evidence("exception", short(f"{failure.type}: {failure.text}"), "observed run"),
        Evidence("sample", sample_named(failure.index), "observed run"),
    ]
    if case.workers == 0:
        found.append(Evidence("workers", "none: num_workers=0", "settings"))
    elif case.at_zero is not None:
        found.append(Evidence("at num_workers=0", "the same exception", "ladder"))
    elif case.passes_at_zero:
        found.append(Evidence("at num_workers=0", "the same samples load", "ladder"))
    return tuple(found)


def _confidence(case: Case) -> Confidence:
    if case.at_zero is not None:
        return "proved"
    return "suspected" if case.passes_at_zero else "observed"
