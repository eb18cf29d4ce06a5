"""Batches under way: how many workers make ahead of the consumer, and what that takes. Pure.

in flight = num_workers x prefetch_factor batches, each as large as what its tensors ship
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Fix
from penstock._lab.record import LoaderSeen, Trial

PREFETCH = 2  # batches per worker: what torch takes when nothing is said


@dataclass(frozen=True, slots=True)
class InFlight:
    """What a loader keeps under way."""

    workers: int
    prefetch: int
    batch_nbytes: int
    tensors: int = 0  # of one batch
    length: int | None = None  # of the loader, in batches

    @property
    def batches(self) -> int:
        """Most batches that are under way at once."""
        ahead = self.workers * self.prefetch
        return ahead if self.length is None else min(ahead, self.length)

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return self.batches * self.batch_nbytes

    def formula(self) -> str:
        """How the number of batches comes about."""
        return f"{self.workers} workers x {self.prefetch} batches ahead"


def in_flight(facts: Facts, loader: LoaderSeen) -> InFlight:
    """What this loader keeps under way with its own settings."""
    settings = loader.settings
    return InFlight(
        workers=int(settings.get("num_workers") or 0),
        prefetch=int(settings.get("prefetch_factor") or PREFETCH),
        batch_nbytes=max((_batch(trial, loader) for trial in facts.trials), default=0),
        tensors=max(
            (seen.tensors_per_batch for trial in facts.trials for seen in trial.of(loader.key)), default=0
        ),
        length=loader.length,
    )


def _batch(trial: Trial, loader: LoaderSeen) -> int:
    """What the largest batch of this trial ships; from its samples where no batch came to be."""
    fetched = [max(seen.nbytes, seen.storage_nbytes) for seen in trial.fetches if seen.loader == loader.key]
    handed = [seen.batch_nbytes for seen in trial.of(loader.key)]
    largest = max((*fetched, *handed), default=0)
    if largest:
        return largest
    samples = [seen.nbytes for seen in trial.samples if seen.loader == loader.key]
    return max(samples, default=0) * int(loader.settings.get("batch_size") or 1)


def set_option(loader: LoaderSeen, name: str, value: object) -> Fix:
    """The patch that gives an option of this loader another value."""
    return Fix("set-option", loader.site, {"option": name, "old": loader.settings.get(name), "new": value})
