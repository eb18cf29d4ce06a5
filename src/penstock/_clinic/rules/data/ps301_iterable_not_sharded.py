"""PS301 iterable-not-sharded

## What it finds
An `IterableDataset` of which every worker yields all samples.

## Why it matters
Each worker has a copy of the dataset and iterates over the whole of it, unless `__iter__` asks which worker
it is in. An epoch then brings every sample `num_workers` times, takes as much longer, and nothing is said.

## How we know
The contents of what each worker yields in one pass: the same stream from all of them, or the same set in
another order, beyond the repetitions that the data itself has. Where random augmentation hides that, or a
long stream is shuffled in each worker and only parts of it were seen, a whole epoch with workers brings
exactly `num_workers` times the samples of one without; and something that chance does not touch tells that
they are the same: names, lengths, or contents that agree place by place far more often than some places
apart. The experiment shards the stream among the workers.

## What to do
Let `__iter__` yield its share: `itertools.islice(stream, info.id, None, info.num_workers)` with
`info = torch.utils.data.get_worker_info()`, or divide the files among the workers.

## When we stay silent
With fewer than two workers; when workers yield different samples; when the data repeats itself so much that
nothing can be told from it.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock._clinic.contents import Reading, compare, distinct_share, keyed, samples, streams
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.naming import loader_named
from penstock._lab.plan import Change
from penstock._lab.record import LoaderSeen, Trial

# Samples that two workers must have in common: fewer may be a coincidence of small data.
FEW = 4
# Of the shorter stream, what the other has too. Shards of one stream have nothing in common.
COMMON = 0.6
# Of the samples of one worker, those with a content of their own: where the data repeats itself, shards of it
# have much in common too. Streams of the same order need less of it.
VARIED = 0.9
LOOSELY_VARIED = 0.3
# Of a long stream that is shuffled only parts are seen, which have less in common; shards still have nothing.
# So many samples, and so many more for each that repeats itself within a worker: chance brings two workers
# of such data twice as many.
LEAST_SHARED = 10
BEYOND_REPEATS = 4
# Streams that go in step agree at so many places, and this many times less often when one is moved a little.
IN_STEP, TIMES_AS_OFTEN, FARTHEST = 10, 4, 8
# A whole epoch with workers is this much longer than one without, at least, when two of them repeat it.
LONGER = 1.5


Stream = dict[int, str]  # by place: the digest of a sample, or its shape


@dataclass(frozen=True, slots=True)
class _Repeat:
    """Workers that yield the same."""

    workers: int
    sentence: str
    evidence: tuple[Evidence, ...]
    is_certain: bool = True


class IterableNotSharded:
    """Every worker yields the whole stream."""

    code: ClassVar[str] = "PS301"
    cause: ClassVar[str] = "iterable-not-sharded"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each iterable dataset whose workers repeat each other."""
        facts = facts.one_rank
        for loader in facts.loaders:
            if not loader.dataset.is_iterable:
                continue
            for trial in facts.trials:
                repeat = _by_content(facts, trial, loader) or _by_count(facts, trial, loader)
                if repeat is not None:
                    yield self._finding(loader, repeat)
                    break

    def _finding(self, loader: LoaderSeen, repeat: _Repeat) -> Finding:
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error" if repeat.is_certain else "info",
            message=(
                f"every one of the {repeat.workers} workers of {loader_named(loader)} yields the whole of "
                f"`{loader.dataset.type or 'the dataset'}`: {repeat.sentence}"
            ),
            prescription=Prescription(
                change=(
                    "in `__iter__`, yield this worker's share: with `info = get_worker_info()`, "
                    "`itertools.islice(stream, info.id, None, info.num_workers)`"
                ),
                expect="an epoch brings each sample once, whatever the number of workers",
                fix=Fix("shard", loader.dataset.site),
            ),
            evidence=repeat.evidence,
            where=loader.dataset.site or loader.site,
            loader=loader.key,
            confidence="observed" if repeat.is_certain else "suspected",
            experiments=(
                Experiment(
                    title="the same loader with the stream divided among its workers",
                    change=Change(mends=("shard-iterable",)),
                    measure="silent",
                ),
            ),
        )


def _by_content(facts: Facts, trial: Trial, loader: LoaderSeen) -> _Repeat | None:
    """Two workers or more that yield the same samples in one pass."""
    alone = _whole(facts.at(loader.key, 0), loader)
    for seen in trial.of(loader.key):
        whole = seen.samples if seen.end == "exhausted" else 0
        if alone and whole and whole < LONGER * alone:
            continue  # divided: what workers have in common, the data has twice
        lines = streams(trial, loader.key, seen.number)
        told = [line for line in lines.values() if len(set(line.values())) > 1]
        varied = LOOSELY_VARIED if alone and whole else VARIED
        if len(told) > 1 and all(_overlap(*pair, varied) for pair in itertools.pairwise(told)):
            return _repeat(told, trial)
    return None


def _overlap(one: Reading, other: Reading, varied: float) -> bool:
    """Whether two streams are one: the same place by place, or the same set in another order."""
    places = compare(one, other)
    if not places.differ and (places.both >= FEW or len(one) == len(other) == places.both):
        return distinct_share(one.values()) >= LOOSELY_VARIED
    first, second = set(one.values()), set(other.values())
    is_much = len(first & second) >= max(FEW, COMMON * min(len(first), len(second)))
    is_varied = min(distinct_share(one.values()), distinct_share(other.values())) >= varied
    return is_much and is_varied


def _repeat(told: list[Reading], trial: Trial) -> _Repeat:
    common = set.intersection(*(set(line.values()) for line in told))
    where = "observed run" if trial.plan.drive == "script" else "ladder"
    return _Repeat(
        workers=len(told),
        sentence=f"{len(common):,} different samples came from each of them, so an epoch repeats the data",
        evidence=(
            Evidence("samples looked at, by worker", ", ".join(f"{len(line):,}" for line in told), where),
            Evidence("contents that all of them yield", f"{len(common):,}", "samples"),
        ),
    )


def _by_count(facts: Facts, trial: Trial, loader: LoaderSeen) -> _Repeat | None:
    """A whole epoch that is exactly `num_workers` times as long as one without workers."""
    alone = _whole(facts.at(loader.key, 0), loader)
    for seen in trial.of(loader.key):
        workers = len(seen.workers)
        together = seen.samples if seen.end == "exhausted" else 0
        if workers < 2 or not alone or together != workers * alone:  # noqa: PLR2004 - two of anything
            continue
        return _Repeat(
            workers=workers,
            sentence=f"an epoch has {together:,} samples, and {alone:,} without workers",
            evidence=(
                Evidence("samples in an epoch", f"{together:,} with {workers} workers", "observed run"),
                Evidence("samples in an epoch without workers", f"{alone:,}", "ladder"),
            ),
            is_certain=_has_common_parts(trial, loader, seen.number)
            or _is_one_stock(facts, trial, loader, seen.number, alone)
            or _is_in_step(trial, loader, seen.number),
        )
    return None


def _is_in_step(trial: Trial, loader: LoaderSeen, number: int) -> bool:
    """Whether workers go through the same, place by place, whatever chance makes of each sample."""
    contents: dict[int, Stream] = defaultdict(dict)
    shapes: dict[int, Stream] = defaultdict(dict)
    for seen in samples(trial, loader.key):
        if seen.iterator == number and seen.worker >= 0 and isinstance(seen.index, int):
            contents[seen.worker][seen.index] = seen.digest
            shapes[seen.worker][seen.index] = seen.shape
    return _all_in_step(contents, _agree) or _all_in_step(shapes, _coincide)


def _all_in_step(lines: dict[int, Stream], is_one: Callable[[Stream, Stream], bool]) -> bool:
    told = list(lines.values())
    return len(told) > 1 and all(is_one(*pair) for pair in itertools.pairwise(told))


def _agree(one: Stream, other: Stream) -> bool:
    """Whether contents agree where they stand at the same place: chance changes most, but not all of them."""
    apart = max(_agreements(one, other, by) for by in range(-FARTHEST, FARTHEST + 1) if by)
    return _agreements(one, other, 0) >= max(IN_STEP, TIMES_AS_OFTEN * apart)


def _coincide(one: Stream, other: Stream) -> bool:
    """Whether shapes are the same at every place, and come and go as those of found data do."""
    both = [place for place in sorted(one) if place in other]
    if any(one[place] != other[place] for place in both):
        return False
    runs = sum(one[before] != one[after] for before, after in itertools.pairwise(both))
    return runs - len({one[place] for place in both}) >= IN_STEP


def _agreements(one: Stream, other: Stream, by: int) -> int:
    return sum(other.get(place + by) == text for place, text in one.items())


def _is_one_stock(facts: Facts, trial: Trial, loader: LoaderSeen, number: int, alone: int) -> bool:
    """Whether workers take the samples of one epoch, in orders of their own, as far as parts of it tell."""
    known = {seen.digest for each in facts.trials for seen in samples(each, loader.key)}
    if len(known) > alone:
        return False  # they draw from more than an epoch has
    lines = list(streams(trial, loader.key, number).values())
    return len(lines) > 1 and all(_share(*pair) for pair in itertools.pairwise(lines))


def _share(one: Reading, other: Reading) -> bool:
    """Whether two streams have more in common than each has with itself."""
    first, second = set(one.values()), set(other.values())
    repeats = len(one) - len(first) + len(other) - len(second)
    return len(first & second) >= LEAST_SHARED + BEYOND_REPEATS * repeats


def _has_common_parts(trial: Trial, loader: LoaderSeen, number: int) -> bool:
    """Whether a part of the samples that no chance changes (a name, a label) is common to all workers."""
    lines: dict[int, dict[int, Reading]] = defaultdict(lambda: defaultdict(dict))
    for seen in samples(trial, loader.key):
        if seen.iterator == number and seen.worker >= 0:
            for place, digest in enumerate(seen.parts):
                lines[place][seen.worker][keyed(seen.index)] = digest
    return any(_is_common(list(of.values())) for of in lines.values())


def _is_common(columns: list[Reading]) -> bool:
    if len(columns) < 2 or len(set(columns[0].values())) < 2:  # noqa: PLR2004 - two of anything
        return False
    return all(_overlap(*pair, VARIED) for pair in itertools.pairwise(columns))


def _whole(trial: Trial | None, loader: LoaderSeen) -> int:
    """Samples of a whole epoch without workers; 0 where none came to its end."""
    if trial is None:
        return 0
    return next((seen.samples for seen in trial.of(loader.key) if seen.end == "exhausted"), 0)
