"""A loader on which a program waits: what rules about speed ask, and the words they share. Pure.

Waiting must matter before anything is said: to the program (a share of its time) and to a person (seconds in
an epoch). An experiment is asked for only where its gain is plausible, because each costs many seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from penstock._clinic import pace
from penstock._clinic.again import by_line
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription
from penstock._clinic.pace import Pace, Work
from penstock._lab.record import IteratorSeen, LoaderSeen, Thing, Trial

# A gain below this is not worth an alarm: the report's own line between a warning and an info.
WORTH = 1.5
# What is asked for must promise a little less than it has to show: predictions are rough.
PROMISING = 1.3
# Below this share the wait is within the noise of a training step, and nothing is said at all.
NOTICEABLE_SHARE = 0.05
# With batches for free, a program that waits this share of its time would be 1.5 times as fast.
WORTH_SHARE = 1 - 1 / WORTH
# Less than this in a whole epoch is nobody's concern, whatever the ratio: to start two workers and make the
# first batch takes a good part of it in a healthy program.
WORTH_S = 1.0
# Epochs that are shorter add up, if there are many.
TOGETHER = 3
# Where something is there that no healthy program has (megabytes of pickled objects, ten workers a CPU, an
# epoch that waits this many times as long as it takes without workers), a part of that is enough to ask.
PLAIN, CONTRADICTED = 0.5, 3
# A loader that is waited for in a smaller part of all loops than this is not what slows the program down.
PART = 0.2
# Of the CPU time that it could have had in the dataset, a worker that computes uses more than this, and one
# that waits less.
COMPUTES, WAITS = 0.7, 0.4
# A worker that was at work in so many looks has work all the time: it also waits for its turn, and starts.
BUSY = 0.65
# A lock that fewer looks than this find a worker waiting for holds nobody up.
LOCKED = 0.1
# What torch's workers need to hand over a batch of a few tensors, and to start; rough, on a usual machine.
HAND_OVER_S, START_S = 0.003, 0.1


@dataclass(frozen=True, slots=True)
class Slow:
    """A loader on which the program notably waits, in the observed run."""

    loader: LoaderSeen
    pace: Pace
    work: Work
    cpus: float = 1.0
    rates: dict[int, float] = field(default_factory=dict)  # samples/s on the ladder, by num_workers
    idle_cpus: float | None = None
    busy_share: float | None = None  # of the looks at workers
    program_s: float = 0.0  # that the program spent in loops over any loader
    passes: tuple[IteratorSeen, ...] = ()
    locked_share: float | None = None  # of the looks at workers, where there were enough
    network_share: float = 0.0  # of the looks at workers: in a socket, a pipe, or asleep

    @property
    def workers(self) -> int:
        """As the program set it."""
        return self.pace.workers

    @property
    def crews(self) -> int:
        """How many times workers were started for it, or for others that its line made."""
        return len({seen.workers for seen in self.passes if seen.workers})

    @property
    def most_workers(self) -> int:
        """As many as there are CPUs, a quota's fraction rounded up."""
        return max(1, math.ceil(self.cpus - 0.01))

    @property
    def worth_s(self) -> float:
        """Seconds that one notices: more on a machine that others keep busy, where all takes longer."""
        return WORTH_S * self.work.crowding(self.workers, self.cpus)

    @property
    def is_worth_a_trial(self) -> bool:
        """Whether batches for free would make the program 1.5 times as fast, by seconds that one notices."""
        return self._is_worth(PLAIN if self._is_contradicted else 1.0)

    @property
    def is_plainly_worth_a_trial(self) -> bool:
        """The same where something plain is there to be tried."""
        return self._is_worth(PLAIN)

    @property
    def is_worth_a_word(self) -> bool:
        """Whether the waiting is noticed at all, be it too little for a trial."""
        is_part = self.pace.wait_s >= NOTICEABLE_SHARE * self.program_s
        return is_part and self.is_noticed(self.pace.epoch_wait_s, PLAIN)

    @property
    def _is_contradicted(self) -> bool:
        """Whether an epoch waits several times as long as it takes to make it without any workers."""
        alone = self.rates.get(0) if self.workers else None
        samples = self.pace.batch_samples * self.pace.epoch_batches
        return bool(alone) and self.pace.epoch_wait_s >= CONTRADICTED * samples / (alone or 1.0)

    def _is_worth(self, part: float = 1.0) -> bool:
        return (
            self.pace.wait_share >= WORTH_SHARE
            and self.is_noticed(self.pace.epoch_wait_s, part)
            and self.matters(self.pace.wait_s)
        )

    def is_noticed(self, epoch_s: float, part: float = 1.0) -> bool:
        """Whether so many seconds of an epoch are noticed: in one, or in several short ones together."""
        least_s = part * self.worth_s
        return epoch_s >= least_s or epoch_s * self.pace.passes >= TOGETHER * least_s

    def matters(self, lost_s: float) -> bool:
        """Whether so many seconds of the observed run are a part of it that counts."""
        return lost_s >= PART * self.program_s

    @property
    def hand_over_s(self) -> float:
        """What a batch waits beyond the making of it."""
        if not self.workers:
            return 0.0
        made = max(0.0, self.work.batch_s / self.workers - self.pace.batch_step_s)
        return max(0.0, self.pace.batch_wait_s - made)

    @property
    def hand_over_share(self) -> float:
        """How much of the waiting for a batch is hand-over."""
        return self.hand_over_s / self.pace.batch_wait_s if self.pace.batch_wait_s else 0.0

    @property
    def flow_s(self) -> float:
        """Seconds of an epoch that wait for batches once workers have started."""
        return self.pace.batch_wait_s * self.pace.epoch_batches

    @property
    def flow_share(self) -> float:
        """How much of an epoch that is."""
        return self.flow_s / self.pace.epoch_s if self.pace.epoch_s else 0.0

    @property
    def makes_batches_all_the_time(self) -> bool:
        """Whether the making of batches is what takes the time: workers are hardly ever without work.

        A worker that waits for an answer over a network looks idle, and those of another loader, which are
        kept for its turn, are: the time that was spent in the dataset tells.
        """
        if self.busy_share is not None and self.workers:
            return max(self.busy_share, self.made_share) >= BUSY
        return self.hand_over_share < 1 / 3

    @property
    def made_share(self) -> float:
        """How much of the time of all workers was spent in the dataset and in collate."""
        worked_s = self.work.batch_s * self.pace.batches
        return worked_s / (self.workers * self.pace.seconds) if self.workers and self.pace.seconds else 0.0

    def hands_over(self, share: float) -> bool:
        """Whether hand-over is at least this share of the waiting.

        The thread that hands over shares its worker's interpreter: a worker that waits for it looks busy.
        """
        return self.workers > 0 and self.hand_over_share >= share

    @property
    def cpu_share(self) -> float:
        """How much of the making is computing: CPU time, and waiting for a CPU."""
        if self.work.queued_s:
            return self.work.wanted_share
        return self.work.cpu_share / min(1.0, self.cpus / max(1, self.workers))

    @property
    def computes(self) -> bool:
        """Whether the making of batches is mostly computing."""
        return self.cpu_share >= COMPUTES

    @property
    def waits(self) -> bool:
        """Whether the making of batches is mostly waiting: for storage, a lock, a sleep."""
        return self.cpu_share < WAITS

    def gain(self, workers: int) -> float | None:
        """How much faster so many workers were on the ladder than the program's own number."""
        own, other = self.rates.get(self.workers), self.rates.get(workers)
        return other / own if own and other else None

    def saved_s(self, workers: int) -> float:
        """Seconds of an epoch that so many workers would have saved, by the ladder; 0 where nobody knows."""
        own, other = self.rates.get(self.workers), self.rates.get(workers)
        samples = self.pace.batch_samples * self.pace.epoch_batches
        return samples / own - samples / other if own and other else 0.0

    def things(self, *kinds: str) -> tuple[Thing, ...]:
        """What hangs on its dataset, of these kinds."""
        return tuple(thing for thing in self.loader.things if thing.kind in kinds)

    @property
    def lock(self) -> Thing | None:
        """A lock of processes on its dataset at which workers may wait for one another."""
        is_waited_for = self.locked_share is None or self.locked_share >= LOCKED
        return next(iter(self.things("mp-lock")), None) if is_waited_for else None

    @property
    def wait(self) -> Evidence:
        """How much the program waits."""
        seen = self.pace
        return Evidence(
            "waiting for data",
            f"{seconds(seen.wait_s)} of {seconds(seen.seconds)}, {seconds(seen.epoch_wait_s)} in an epoch",
            "observed run",
        )

    @property
    def ladder(self) -> tuple[Evidence, ...]:
        """Samples per second by number of workers."""
        if not self.rates:
            return ()
        steps = ", ".join(f"{workers} workers {speed:,.0f}" for workers, speed in self.rates.items())
        return (Evidence("samples/s", steps, "ladder"),)

    def set_option(self, name: str, new: Any, *, expect: str) -> Prescription:
        """Write another value for one keyword of the loader."""
        old = self.loader.settings.get(name)
        return Prescription(
            change=f"{name}={old!r} → {name}={new!r}",
            expect=expect,
            fix=Fix("set-option", self.loader.site, {"option": name, "old": old, "new": new}),
        )


def weighed(finding: Finding, slow: Slow) -> Finding:
    """The finding, a remark where too little is waited for to try its cure."""
    return finding if slow.is_plainly_worth_a_trial else replace(finding, severity="info")


def slow_loaders(facts: Facts) -> Iterator[Slow]:
    """The loaders of the observed run on which the program notably waits, worst first; no ranks."""
    if facts.observed is None or len({seen.pid for seen in facts.observed.iterators}) > 1:
        return  # ranks share the machine: what each waits for is the others
    trial = by_line(facts.observed)
    paces = {seen.key: pace.pace(trial, seen.key) for seen in trial.loaders}
    # Loops may lie one within another: together they take no longer than there was time.
    began_s = min((seen.began_s for seen in trial.iterators), default=0.0)
    program_s = min(sum(each.seconds for each in paces.values()), max(0.0, trial.seconds - began_s))
    waited = [seen for seen in trial.loaders if paces[seen.key].batches]
    for seen in sorted(waited, key=lambda seen: -paces[seen.key].wait_s):
        if paces[seen.key].wait_share >= NOTICEABLE_SHARE:
            yield _slow(facts, trial, seen, program_s)


def _slow(facts: Facts, trial: Trial, loader: LoaderSeen, program_s: float) -> Slow:
    return Slow(
        loader=loader,
        pace=pace.pace(trial, loader.key),
        work=pace.work(trial, loader.key),
        cpus=max(facts.host.cpus, 0.1),
        rates=pace.rates(facts, loader.key),
        idle_cpus=pace.idle_cpus(trial, loader.key),
        busy_share=pace.busy_share(trial),
        program_s=program_s,
        passes=trial.of(loader.key),
        locked_share=pace.locked_share(trial),
        network_share=pace.network_share(trial),
    )


def percent(share: float) -> str:
    """A share as "83 %"."""
    return f"{share:.0%}".replace("%", " %")


def seconds(amount: float) -> str:
    """A time as "0.25 s", "12 s", "4 ms"."""
    if amount < 0.1:  # noqa: PLR2004 - below, milliseconds read better
        return f"{amount * 1e3:.1f}".removesuffix(".0") + " ms"
    return f"{amount:.1f}".removesuffix(".0") + " s" if amount < 10 else f"{amount:.0f} s"  # noqa: PLR2004
