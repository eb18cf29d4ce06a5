"""PS213 copy-on-write-growth

## What it finds
Workers whose own memory grows with every sample because the dataset keeps many small Python objects.

## Why it matters
A forked worker shares its parent's memory until it writes to it, and reading a Python object writes to it:
its reference count. So a list of a million file names is copied into every worker, page by page, over the
first epochs. Programs run for hours and are then killed for want of memory.

## How we know
The dataset holds a list or dictionary of many Python objects, workers are forked, and the memory that is each
worker's own (USS) rises with the samples it makes, too much for noise: still at the end of the run, or until
it has gained as much as the lists hold. Where the program is killed before that shows: what the lists hold,
in every worker, is more than fits beside the program. The experiment packs these lists into one buffer and
looks again.

## What to do
Keep such data in one array: `numpy` bytes and offsets, an arrow table, a tensor. `gc.freeze()` does not help.

## When we stay silent
When lists are small, when growth stops before the lists can have been copied, when workers are spawned, and
when the growth comes from a cache that fills (PS214).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock._clinic import amounts, growth
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.naming import loader_named
from penstock._clinic.shortage import NEAR, is_out_of_memory
from penstock._lab.plan import Change
from penstock._lab.record import LoaderSeen, Thing, Trial

# Elements of a list: ten times fewer are some megabytes, which any program spends on its imports.
MANY = 50_000
# Growth of all workers that must have been seen: below it, an allocator's arenas explain as much.
SEEN = 12 << 20
# What it can come to in all workers, to be worth a word: a list of file names of a usual dataset is less.
WORTH = 64 << 20
# Of what the lists hold, gained by each worker: they have been copied, and memory is level from there on.
COPIED = 0.5
# Bytes of a small object and its place in a list, where nobody has counted them.
OBJECT = 120


@dataclass(frozen=True, slots=True)
class _Grown:
    """What the workers of one loader have gained."""

    lists: tuple[Thing, ...]
    per_sample: float  # bytes, in one worker; 0 where all has been copied
    seen: float  # bytes gained in all workers, as far as the trial went
    workers: int

    @property
    def most(self) -> int:
        """What one worker can gain in the end: all of the lists."""
        return sum(_nbytes(each) for each in self.lists)


class CopyOnWriteGrowth:
    """Reading Python objects copies them into every worker."""

    code: ClassVar[str] = "PS213"
    cause: ClassVar[str] = "copy-on-write-growth"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose workers copy the dataset's lists."""
        for loader in facts.loaders:
            for trial in facts.trials:
                grown = _grown(trial, loader)
                if grown is not None:
                    yield self._finding(facts, loader, grown)
                    break
            else:
                grown = _foretold(facts, loader)
                if grown is not None:
                    yield self._finding(facts, loader, grown)

    def _finding(self, facts: Facts, loader: LoaderSeen, grown: _Grown) -> Finding:
        largest = max(grown.lists, key=_nbytes)
        total = grown.most * grown.workers
        dies = facts.observed is not None and is_out_of_memory(facts.observed)
        so_far = f"{amounts.size(grown.seen)} so far, " if grown.seen else ""
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error" if dies else "warning",
            message=(
                f"each worker of {loader_named(loader)} copies `{largest.path}` ({largest.count:,} Python "
                f"objects) as it reads it: {so_far}up to {amounts.size(total)} more in "
                f"{grown.workers} workers"
            ),
            prescription=Prescription(
                change=f"keep `{largest.path}` in one array (numpy, or bytes with offsets), not in a list",
                expect="the workers' memory stays flat, shared with the consumer",
                fix=Fix("pack-list", largest.site or loader.dataset.site, {"path": largest.path}),
            ),
            evidence=tuple(_evidence(grown, facts)),
            where=largest.site or loader.dataset.site or loader.site,
            loader=loader.key,
            confidence="observed" if grown.seen else "suspected",
            experiments=(
                Experiment(
                    title="the same loader with its lists packed into one buffer",
                    change=Change(mends=("pack-lists",)),
                    measure="gone" if dies else "smaller",
                    ratio=2.0,
                ),
            ),
        )


def _grown(trial: Trial, loader: LoaderSeen) -> _Grown | None:
    lists = _lists(trial, loader)
    if not lists or loader.start_method != "fork" or _has_cache(trial, loader):
        return None
    slope, seen = growth.of_workers(trial, loader.key)
    if not slope.is_rising:
        seen = _copied(trial, loader, sum(map(_nbytes, lists)))
    grown = _Grown(
        lists=lists,
        per_sample=slope.per_step,
        seen=seen,
        workers=len({seen.worker for seen in growth.fetches(trial, loader.key)}),
    )
    return grown if grown.seen >= SEEN and grown.most * grown.workers >= WORTH else None


def _foretold(facts: Facts, loader: LoaderSeen) -> _Grown | None:
    """Where memory ran out before growth could be seen: copies that would not fit beside the program."""
    trial, alone = facts.observed, facts.at(loader.key, 0)
    if trial is None or alone is None or alone.outcome != "ok" or not is_out_of_memory(trial):
        return None
    lists = _lists(trial, loader)
    if not lists or loader.start_method != "fork" or _has_cache(trial, loader):
        return None
    workers = int(loader.settings.get("num_workers") or 0)
    grown = _Grown(lists=lists, per_sample=0.0, seen=0.0, workers=workers)
    needed = max((each.tree_pss for each in alone.vitals), default=0) + grown.most * workers
    return grown if needed >= NEAR * trial.host.memory_limit > 0 else None


def _copied(trial: Trial, loader: LoaderSeen, most: int) -> float:
    """Bytes gained by the workers that have gained about all that the lists hold."""
    lines = growth.lines(trial, loader.key).values()
    gains = [line[-1][1] - line[0][1] for line in lines]
    return sum(gain for gain in gains if gain >= COPIED * most)


def _lists(trial: Trial, loader: LoaderSeen) -> tuple[Thing, ...]:
    seen = trial.loader(loader.key) or loader
    things = {each.path: each for each in (*loader.things, *seen.things)}
    return tuple(each for each in things.values() if each.kind == "large-list" and each.count >= MANY)


def _has_cache(trial: Trial, loader: LoaderSeen) -> bool:
    """Whether a container of the dataset fills while samples are made: then that is what grows."""
    first: dict[tuple[int, str], int] = {}
    for fetch in growth.fetches(trial, loader.key):
        for path, count in fetch.caches.items():
            if count - first.setdefault((fetch.pid, path), count) >= growth.FEWEST:
                return True
    return False


def _nbytes(thing: Thing) -> int:
    return thing.nbytes or thing.count * OBJECT


def _evidence(grown: _Grown, facts: Facts) -> Iterator[Evidence]:
    for each in sorted(grown.lists, key=_nbytes, reverse=True)[:3]:
        value = f"{each.type} of {each.count:,} objects, about {amounts.size(_nbytes(each))}"
        yield Evidence(f"`{each.path}`", value, "samples")
    value = (
        f"{amounts.size(grown.per_sample)} with each sample, still rising at the end"
        if grown.per_sample
        else f"{amounts.size(grown.seen)} in all, then level: by then the lists have been copied"
    )
    if grown.seen:
        yield Evidence("growth of a worker's own memory", value, "observed run")
    if facts.host.memory_limit:
        yield Evidence("limit of memory", amounts.size(facts.host.memory_limit), "host")
