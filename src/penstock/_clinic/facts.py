"""What rules may read: source, host, the observed run, the ladder. Pure, frozen, easy to write in a test."""

from __future__ import annotations

import dataclasses
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

    @property
    def has_ranks(self) -> bool:
        """Whether several processes of the program take batches side by side."""
        return any(len(_ranks(trial)) > 1 for trial in self.trials)

    @property
    def one_rank(self) -> Facts:
        """The same of one rank alone: others may have other data, and share nothing but their line."""
        if not self.has_ranks:
            return self
        alone = tuple(map(_of_one_rank, self.trials))
        observed, ladder = (alone[0], alone[1:]) if self.observed else (None, alone)
        return dataclasses.replace(self, observed=observed, ladder=ladder)

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


def _ranks(trial: Trial) -> list[int]:
    workers = {pid for seen in trial.iterators for pid in seen.workers}
    return list(dict.fromkeys(seen.pid for seen in trial.iterators if seen.pid not in workers))


def _of_one_rank(trial: Trial) -> Trial:
    first = _ranks(trial)[:1]
    own = set(first).union(*(seen.workers for seen in trial.iterators if seen.pid in first))
    return dataclasses.replace(
        trial,
        iterators=tuple(each for each in trial.iterators if each.pid in own),
        samples=tuple(each for each in trial.samples if each.pid in own),
        fetches=tuple(each for each in trial.fetches if each.pid in own),
    )
