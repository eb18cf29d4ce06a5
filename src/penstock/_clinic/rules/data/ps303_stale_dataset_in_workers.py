"""PS303 stale-dataset-in-workers

## What it finds
An attribute of the dataset or of the collate function, or a global that their code uses, that the program
changes between epochs and that persistent workers never see.

## Why it matters
Persistent workers keep the copy of the dataset with which they were started. `dataset.set_epoch(…)`, a new
transform, a harder curriculum: the program sets them in its own copy, and every epoch is like the first.

## How we know
These values in the consumer are compared with what they were when the workers got them, and with those of
the workers' own copies; a program whose epochs are long is run once more with short ones. The contents of
samples in later epochs are those of the first, index by index, or the code that makes samples names what has
changed. The experiment gives workers the new values at the start of each epoch; then they have
them, and contents change.

## What to do
Leave `persistent_workers` out, or keep the value where workers see it: `multiprocessing.Value`, or a tensor
after `share_memory_()`.

## When we stay silent
Without persistent workers; when nothing was changed; when contents do not change with the attribute.
"""

from __future__ import annotations

import re
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
_CHECKSUM = re.compile(r" with the checksum [0-9a-f]{8}")


class StaleDatasetInWorkers:
    """Persistent workers do not see what the program changes."""

    code: ClassVar[str] = "PS303"
    cause: ClassVar[str] = "stale-dataset-in-workers"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose workers have an old dataset."""
        facts = facts.one_rank
        trial = facts.observed
        if trial is None:
            return
        for loader in facts.loaders:
            later = _later(trial, loader)
            if later is None:
                continue
            unseen = _unseen(later)
            compared = _compared(trial, loader)
            used = later.used if loader.settings.get("persistent_workers") else ()
            # What the code that makes samples mentions, workers must have. Of anything else only contents can
            # tell, which must not be random: it may be an attribute that matters to nobody.
            if used:
                is_stale = bool({*used} & {*unseen})
            else:
                is_stale = _is_told(trial, compared) and not compared.differ
                is_stale = is_stale and bool(unseen or trial.plan.change)
            if is_stale:
                yield self._finding(loader, later, compared, used)

    def _finding(
        self, loader: LoaderSeen, later: IteratorSeen, compared: Compared, used: tuple[str, ...]
    ) -> Finding:
        path = (used or _unseen(later) or tuple(later.changed))[0]
        as_far = max(1, later.number)
        confidence: Confidence = "observed" if used else "suspected"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=(
                f"persistent workers of {loader_named(loader)} do not see that the program changed `{path}` "
                f"({_in_words(later.changed[path])}): they keep their copy of the first epoch"
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
            where=(loader.dataset.site if path.startswith("dataset") else None) or loader.site,
            loader=loader.key,
            confidence=confidence,
            experiments=(
                Experiment(
                    title="the same program, workers given the new values in each epoch",
                    change=Change(mends=("fresh-attributes",)),
                    drive="script",
                    epochs=as_far,
                ),
                Experiment(
                    title="the same program with persistent_workers=False",
                    change=Change(settings={"persistent_workers": False}),
                    drive="script",
                    epochs=as_far,
                ),
            ),
        )


def _later(trial: Trial, loader: LoaderSeen) -> IteratorSeen | None:
    """The first pass for which the program had changed something that the workers may not have.

    In a trial that makes workers anew it is asked too, whether contents then change: else all that an
    experiment without persistent workers shows is that they are gone.
    """
    if not loader.settings.get("persistent_workers") and not trial.plan.change:
        return None
    return next((seen for seen in trial.of(loader.key) if seen.changed), None)


def _unseen(later: IteratorSeen) -> tuple[str, ...]:
    """What has changed in the consumer and not in the workers, as far as they have told."""
    theirs = later.workers_changed or {}
    return tuple(path for path, change in later.changed.items() if theirs.get(path) != change)


def _is_told(trial: Trial, compared: Compared) -> bool:
    """Whether contents tell anything; an experiment that came to no second epoch has cured nothing."""
    return compared.both >= FEW or bool(trial.plan.change)


def _compared(trial: Trial, loader: LoaderSeen) -> Compared:
    """The first epoch against the later ones, by index."""
    first, *rest = readings(trial, loader.key) or [{}]
    told = [compare(first, later) for later in rest]
    return Compared(sum(each.both for each in told), sum(each.differ for each in told))


def _in_words(change: str) -> str:
    """A change without the checksums that tell one from another."""
    before, _, after = _CHECKSUM.sub("", change).partition(" → ")
    return "other contents" if before == after else f"{before} → {after}"


def _evidence(later: IteratorSeen, compared: Compared, used: tuple[str, ...]) -> Iterator[Evidence]:
    for path in (used or _unseen(later))[:3]:
        yield Evidence(f"`{path}` in the consumer", _in_words(later.changed[path]), "observed run")
        if later.workers_changed is not None:
            yield Evidence(f"`{path}` in the workers", "not changed", "observed run")
    if compared.both:
        same = compared.both - compared.differ
        value = f"{same:,} of {compared.both:,} as in the first"
        yield Evidence("contents of samples in later epochs", value, "samples")
    if used:
        yield Evidence("read where samples are made", amounts.listed(used), "the program's code")
