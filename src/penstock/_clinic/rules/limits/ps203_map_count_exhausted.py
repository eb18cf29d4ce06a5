"""PS203 map-count-exhausted

## What it finds
A process that runs out of memory maps (`vm.max_map_count`, usually 65,530) because of tensors from workers.

## Why it matters
Each live tensor from a worker is a memory map of its own. A program that keeps its batches, most often with
the sharing strategy `file_system`, which uses up no descriptors, reaches the limit: "unable to mmap … Cannot
allocate memory (12)", with memory free.

## How we know
The text, with a number of maps near the limit. Before it fails: the program holds every batch, the number of
maps rises with them, and the tensors of an epoch are more than the limit allows. The experiment lets go of
kept batches.

## What to do
Keep copies (`batch.clone()`), not what the loader handed over, or make one tensor of many in the collate
function. `sysctl vm.max_map_count` is the last resort.

## When we stay silent
When maps are few: then memory itself ran out (PS211).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic import amounts
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Finding
from penstock._clinic.kept import keep_copies, keeper, let_go
from penstock._clinic.naming import loader_named
from penstock._clinic.said import Said, loader_of, said
from penstock._lab.record import IteratorSeen, LoaderSeen, Trial

_TEXT = re.compile(r"unable to mmap \d+ bytes.*Cannot allocate memory|unable to mmap \d+ bytes.*\(12\)")

# Maps are counted a few times a second, and go when the process ends: this near is at the limit.
NEAR = 0.8
EXPECT = "maps are given back as batches go; the number stays flat"
CERTAIN = 1.1  # how far past the limit the rest of the epoch must lead


class MapCountExhausted:
    """Tensors from workers use up the memory maps."""

    code: ClassVar[str] = "PS203"
    cause: ClassVar[str] = "map-count-exhausted"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding when maps ran out or certainly will."""
        for trial in facts.trials:
            found = said(trial, _TEXT)
            if found is not None and _maps(trial, found) >= NEAR * trial.host.max_map_count > 0:
                yield self._failed(facts, trial, found)
                return
        yield from self._will_fail(facts)

    def _failed(self, facts: Facts, trial: Trial, found: Said) -> Finding:
        loader = loader_of(facts, trial, found.failure)
        kept = keeper(trial, loader)
        holds = f", of which the program keeps {amounts.count(kept.kept, 'batch')}" if kept else ""
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=(
                f"{loader_named(loader)} fails at the limit of {trial.host.max_map_count:,} memory maps: "
                f"each tensor from a worker is one{holds}"
            ),
            prescription=keep_copies(loader, EXPECT),
            evidence=(
                Evidence("what was said", found.line, found.source),
                *_evidence(trial, loader, kept, found),
            ),
            where=loader.site if loader else None,
            loader=loader.key if loader else None,
            experiments=(let_go(),),
            stopped_at_s=found.failure.at_s if found.failure is not None else trial.seconds,
        )

    def _will_fail(self, facts: Facts) -> Iterator[Finding]:
        trial = facts.observed
        if trial is None or not trial.host.max_map_count:
            return
        for loader in facts.loaders:
            kept = keeper(trial, loader)
            if kept is None or not _rises(trial, kept) or _fds_first(trial, loader):
                continue
            end = kept.tensors_per_batch * (loader.length or 0)
            if end < CERTAIN * trial.host.max_map_count:
                continue
            yield Finding(
                code=self.code,
                cause=self.cause,
                severity="warning",
                message=(
                    f"the program keeps every batch of {loader_named(loader)}, and each holds "
                    f"{kept.tensors_per_batch:,} memory maps: {end:,} by the end of the epoch of "
                    f"{loader.length or 0:,} batches, where {trial.host.max_map_count:,} are allowed"
                ),
                prescription=keep_copies(loader, EXPECT),
                evidence=tuple(_evidence(trial, loader, kept)),
                where=loader.site,
                loader=loader.key,
                experiments=(let_go("smaller"),),
            )


def _rises(trial: Trial, kept: IteratorSeen) -> bool:
    """Whether the maps of at least one batch were seen to stay: they are counted once in a while."""
    maps = [seen.main_maps for seen in trial.vitals if seen.main_maps]
    return bool(maps) and max(maps) - maps[0] >= max(1, kept.tensors_per_batch)


def _fds_first(trial: Trial, loader: LoaderSeen) -> bool:
    """Whether descriptors run out before maps do: one for each tensor, and there are fewer of them."""
    return loader.sharing_strategy != "file_system" and 0 < trial.host.nofile < trial.host.max_map_count


def _maps(trial: Trial, found: Said | None = None) -> int:
    """The most that were seen: now and then from outside, and by the process that could get no more."""
    failed = found.failure.maps if found is not None and found.failure is not None else 0
    return max((failed, *(seen.main_maps for seen in trial.vitals)))


def _evidence(
    trial: Trial, loader: LoaderSeen | None, kept: IteratorSeen | None, found: Said | None = None
) -> Iterator[Evidence]:
    limit = f"{_maps(trial, found):,} at most, of {trial.host.max_map_count:,}"
    yield Evidence("memory maps of the consumer", limit, "observed run")
    if kept is not None:
        yield Evidence("batches that the program holds", f"{kept.kept} of {kept.batches}", "observed run")
        yield Evidence("tensors per batch", f"{kept.tensors_per_batch:,}", "observed run")
    if loader is not None and loader.sharing_strategy:
        yield Evidence("sharing strategy", loader.sharing_strategy, "settings")
