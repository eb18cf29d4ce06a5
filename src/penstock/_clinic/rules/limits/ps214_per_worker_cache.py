"""PS214 per-worker-cache

## What it finds
A cache in the dataset that each worker fills for itself.

## Why it matters
Workers do not share what they store: a cache that would fit once is there `num_workers` times. Workers that
are not persistent even throw it away after each epoch and fill it again. It ends with a killed worker.

## How we know
A container of the dataset has more elements after each batch, in every worker, and the worker's own memory
rises with it. What that comes to over the dataset is set against the memory there is. Where workers are
killed before they can tell, it is what the process gains without workers, as many times. The experiment runs
the same loader with caches that keep nothing.

## What to do
Fill the cache before workers start, in one array or tensor, which they then share; or bound it
(`functools.lru_cache(maxsize=…)`).

## When we stay silent
When all copies of the cache are small: below 128 MB together where they are full, else beside the memory
there is.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock._clinic import amounts, growth
from penstock._clinic.contents import compare, readings
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.naming import loader_named
from penstock._clinic.shortage import is_out_of_memory
from penstock._lab.plan import Change
from penstock._lab.record import LoaderSeen, Trial

# What a cache must have taken during the trial to be told from an allocator's arenas.
SEEN = 16 << 20
# What all copies will take once the dataset has been seen, to be worth an alarm: an absolute sum that any
# machine notices, or a share of what there is.
MUCH = 256 << 20
SHARE = 0.2
# What is there more than once, all copies together, when each worker has filled its own: as much as importing
# torch takes.
FULL = 128 << 20
ALIKE = 0.8  # of the elements of the fullest: a copy of the same
_TENTH = 0.1  # of its elements, that a cache still gains at the end of a trial when it is not bounded


@dataclass(frozen=True, slots=True)
class _Cache:
    """One container that grows in workers."""

    path: str
    elements: int  # most in one worker
    per_sample: float  # bytes that a worker gains with each sample
    seen: float  # bytes gained in all workers
    workers: int
    total: float  # bytes in all workers, once each has seen what it will see

    @property
    def told(self) -> str:
        """How much it is, in words."""
        so_far = f"{amounts.size(self.seen)} so far, " if self.seen < self.total else ""
        return f"{so_far}{amounts.size(self.total)} once the dataset has been read"


class PerWorkerCache:
    """Every worker fills a cache of its own."""

    code: ClassVar[str] = "PS214"
    cause: ClassVar[str] = "per-worker-cache"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose workers fill caches that matter."""
        for loader in facts.loaders:
            for trial in facts.trials:
                cache = _cache(facts, trial, loader)
                if cache is None or not _matters(trial, cache):
                    cache = _full(trial, loader)
                if cache is not None:
                    yield self._finding(loader, trial, cache)
                    break
            else:
                cache = _foretold(facts, loader)
                if cache is not None and facts.observed is not None:
                    yield self._finding(loader, facts.observed, cache)

    def _finding(self, loader: LoaderSeen, trial: Trial, cache: _Cache) -> Finding:
        dies = is_out_of_memory(trial)
        kept = bool(loader.settings.get("persistent_workers"))
        again = "" if kept else ", and throws it away after the epoch"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error" if dies else "warning",
            message=(
                f"each of {cache.workers} workers of {loader_named(loader)} fills a cache of its own, "
                f"`{cache.path}`{again}: {cache.told}"
            ),
            prescription=Prescription(
                change=(
                    f"fill `{cache.path}` before workers start, in one tensor or array that they share, "
                    "or bound it"
                ),
                expect="memory stays flat while the epoch goes on",
                fix=Fix("bounded-cache", loader.dataset.site, {"path": cache.path}),
            ),
            evidence=tuple(_evidence(trial, cache)),
            where=loader.dataset.site or loader.site,
            loader=loader.key,
            experiments=(
                Experiment(
                    title="the same loader with caches that keep nothing",
                    change=Change(mends=("no-cache",)),
                    measure="gone" if dies else "smaller",
                    ratio=2.0,
                ),
            ),
        )


def _cache(facts: Facts, trial: Trial, loader: LoaderSeen) -> _Cache | None:
    """The container that grows most, where the workers' memory grows with it."""
    slope, seen = growth.of_workers(trial, loader.key)
    counts = _counts(trial, loader) or _filled_arrays(facts, loader)
    if not slope.is_rising or not counts:
        return None
    path = max(counts, key=lambda name: max(counts[name].values()))
    workers = len({seen.worker for seen in growth.fetches(trial, loader.key)})
    length = loader.dataset.length or 0
    copies = workers if loader.settings.get("persistent_workers") else 1  # else each worker sees its part
    return _Cache(
        path=path,
        elements=max(counts[path].values()),
        per_sample=slope.per_step,
        seen=seen,
        workers=workers,
        total=max(seen, slope.per_step * length * copies),
    )


def _full(trial: Trial, loader: LoaderSeen) -> _Cache | None:
    """A cache that no longer grows, because every worker has all of it by now; None where that is little."""
    held: dict[str, dict[int, _Held]] = defaultdict(dict)
    for fetch in sorted(growth.fetches(trial, loader.key), key=lambda seen: seen.began_s):
        for path, count in fetch.caches.items() if fetch.uss else ():
            before = held[path].get(fetch.pid) or _Held(count, fetch.uss)
            if count > before.last:
                held[path][fetch.pid] = dataclasses.replace(before, last=count, last_uss=fetch.uss)
    growing = _counts(trial, loader)
    for path, workers in held.items():
        most = max((each.last for each in workers.values()), default=0)
        copies = [each for each in workers.values() if each.last >= ALIKE * most]
        total = sum(each.nbytes for each in copies)
        if path not in growing and len(copies) > 1 and total >= FULL:
            return _Cache(path, most, 0.0, total, len(copies), total)
    return None


def _foretold(facts: Facts, loader: LoaderSeen) -> _Cache | None:
    """A cache that fills without workers, where workers die for want of memory before they show theirs."""
    observed, zero = facts.observed, facts.at(loader.key, 0)
    if observed is None or zero is None or not is_out_of_memory(observed):
        return None
    counts = [fetch.caches for fetch in zero.fetches if fetch.loader == loader.key and fetch.caches]
    gained, workers = _gained(zero), int(loader.settings.get("num_workers") or 0)
    total = gained * workers
    if not counts or gained < SEEN or total < SHARE * observed.host.memory_limit:
        return None
    path = max(counts[-1], key=lambda name: counts[-1][name])
    return _Cache(path, counts[-1][path], 0.0, total, workers, total)


def _gained(trial: Trial) -> int:
    """By how much the consumer is larger at its largest than when it began to iterate."""
    began_s = min((seen.began_s for seen in trial.iterators), default=0.0)
    before = [seen.main_rss for seen in trial.vitals if seen.at_s <= began_s]
    return max((seen.main_rss for seen in trial.vitals), default=0) - before[-1] if before else 0


@dataclass(frozen=True, slots=True)
class _Held:
    """What a worker had when a cache was first told of, and last."""

    first: int
    first_uss: int
    last: int = 0
    last_uss: int = 0

    @property
    def nbytes(self) -> float:
        """About what the whole cache takes, from what the elements took that came in between."""
        gained = self.last - self.first
        return max(0, self.last_uss - self.first_uss) / gained * self.last if gained > 0 else 0.0


def _counts(trial: Trial, loader: LoaderSeen) -> dict[str, dict[int, int]]:
    """By path and pid: elements of each container that still grew at the end."""
    lines: dict[tuple[str, int], list[int]] = defaultdict(list)
    for fetch in sorted(growth.fetches(trial, loader.key), key=lambda seen: seen.began_s):
        for path, count in fetch.caches.items():
            lines[path, fetch.pid].append(count)
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for (path, pid), line in lines.items():
        if _still_fills(line):
            found[path][pid] = line[-1]
    return dict(found)


def _filled_arrays(facts: Facts, loader: LoaderSeen) -> dict[str, dict[int, int]]:
    """Arrays on the dataset that samples write to while they stay what they are: caches with fixed places."""
    zero = facts.at(loader.key, 0)
    seen = zero.loader(loader.key) if zero is not None else None
    told = readings(zero, loader.key) if zero is not None else []
    if seen is None or not seen.dataset.mutated or len(told) < 2:  # noqa: PLR2004 - two passes
        return {}
    compared = compare(told[0], told[1])
    if not compared.both or compared.differ:
        return {}
    return {path: {0: loader.dataset.sizes.get(path, 0)} for path in seen.dataset.mutated}


def _still_fills(line: list[int]) -> bool:
    """Whether a count rose over the trial, and still over its last third."""
    late = line[len(line) * 2 // 3]
    return len(line) > 2 and line[-1] > line[0] and line[-1] - late >= _TENTH * (line[-1] - line[0])  # noqa: PLR2004


def _matters(trial: Trial, cache: _Cache) -> bool:
    if is_out_of_memory(trial):
        return cache.seen >= SEEN
    limit = trial.host.memory_limit
    return cache.seen >= SEEN and cache.total >= min(MUCH, SHARE * limit if limit else MUCH)


def _evidence(trial: Trial, cache: _Cache) -> Iterator[Evidence]:
    yield Evidence(f"`{cache.path}`", f"{cache.elements:,} elements in one worker", "samples")
    if cache.per_sample:
        value = f"{amounts.size(cache.per_sample)} with each sample"
        yield Evidence("growth of a worker's own memory", value, "observed run")
    else:
        yield Evidence(
            "all copies of it", f"{amounts.size(cache.total)} in {cache.workers} workers", "samples"
        )
    if trial.host.memory_limit:
        yield Evidence("limit of memory", amounts.size(trial.host.memory_limit), "host")
