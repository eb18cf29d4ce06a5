"""What rules may read: source, host, the observed run, the ladder. Pure, frozen, easy to write in a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock._clinic.source import Source

if TYPE_CHECKING:  # only for `penstock lint`, which starts in a tenth of a second and has no trials
    from penstock._lab.record import HostSeen, IteratorSeen, LoaderSeen, Trial


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts at hand; a rule is asked only when those that it needs are there."""

    source: Source | None = None
    observed: Trial | None = None
    ladder: tuple[Trial, ...] = ()  # every rung of every loader, lowest num_workers first
    timings: tuple[Trial, ...] = ()  # rungs that were run again, interleaved, for their speed

    @property
    def at_hand(self) -> frozenset[str]:
        """Which kinds of facts there are: "source", "observed", "ladder"."""
        present = {"source": self.source is not None, "observed": self.observed is not None}
        return frozenset(name for name, there in {**present, "ladder": bool(self.ladder)}.items() if there)

    @property
    def host(self) -> HostSeen:
        """The machine and its limits."""
        from penstock._lab.record import HostSeen

        return self.observed.host if self.observed else HostSeen()

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Observed run first, then the ladder."""
        return ((self.observed,) if self.observed else ()) + self.ladder

    @property
    def loaders(self) -> tuple[LoaderSeen, ...]:
        """The loaders that the program used, in order of their first pass, then those only made.

        One that a worker made for itself is a part of the dataset: nobody can set its workers alone.
        """
        if self.observed is None:
            return ()
        used = list(dict.fromkeys(seen.loader for seen in self.observed.iterators))
        rank = {key: place for place, key in enumerate(used)}
        workers = {pid for seen in self.observed.iterators for pid in seen.workers}
        own = (seen for seen in self.observed.loaders if seen.pid not in workers)
        return tuple(sorted(own, key=lambda seen: rank.get(seen.key, len(rank))))

    def rungs(self, key: str) -> tuple[Trial, ...]:
        """The ladder of one loader, lowest num_workers first; the user's own setting comes last."""
        return tuple(trial for trial in self.ladder if trial.plan.loader == key)

    def at(self, key: str, workers: int) -> Trial | None:
        """The rung of one loader with so many workers."""
        for trial in self.rungs(key):
            if trial.plan.change.settings.get("num_workers") == workers:
                return trial
        return None

    def passes(self, key: str) -> tuple[IteratorSeen, ...]:
        """The passes over one loader in the observed run."""
        return self.observed.of(key) if self.observed else ()
