"""How fast a loader was, and where its time went: numbers for rules, made of what trials recorded.

    pass     iter() ── first batch ──── batch ── batch …          the consumer waits, then steps
             └ start ─┘└─ wait ─┘ step └ wait ┘ step
    batch    samples (the dataset) ── collate ── hand-over        in a worker; reads are no CPU time

`Pace` is the consumer's side of one loader in one trial, `Work` the workers' side; `_clinic/slowness.py`
joins both for a loader on which a program really waits. Pure.
"""

from __future__ import annotations

import dataclasses
import heapq
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from penstock._clinic.facts import Facts
from penstock._lab.plan import Change
from penstock._lab.record import FetchSeen, IteratorSeen, Trial

# Batches of a loader whose times are all told; of later ones only some are, and more of the slow ones.
FULL = 200
# In which of the kernel's functions a worker waits that has nothing to do.
IDLE = ("poll_schedule", "do_poll", "do_sys_poll", "ep_poll")
# Looks at workers, below which they tell nothing.
ENOUGH_LOOKS = 12
# Seconds of waiting for a CPU, below which nobody can be said to have taken it.
QUEUED_S = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """The consumer's side: all passes over one loader in one trial."""

    workers: int = 0
    passes: int = 0
    batches: int = 0
    samples: int = 0
    start_s: float = 0.0  # until the first batch came, above what a batch takes later; all passes
    wait_s: float = 0.0  # in iter() and next(), all passes
    step_s: float = 0.0  # in the program's own loop
    batch_wait_s: float = 0.0  # for a batch, once the pass is under way
    batch_step_s: float = 0.0
    length: int | None = None  # batches in a whole epoch

    @property
    def seconds(self) -> float:
        """All passes from iter() to the end."""
        return self.wait_s + self.step_s

    @property
    def wait_share(self) -> float:
        """The part of that time in which the program waits for data."""
        return self.wait_s / self.seconds if self.seconds else 0.0

    @property
    def epoch_batches(self) -> int:
        """Batches in a whole epoch: as the loader says, or else as many as were seen in a pass."""
        seen = -(-self.batches // self.passes) if self.passes else 0
        return max(self.length or 0, seen)

    @property
    def is_all_first(self) -> bool:
        """Whether only first batches of passes were seen: what one takes later, nobody knows."""
        return self.batches <= self.passes and self.epoch_batches > 1

    @property
    def pass_start_s(self) -> float:
        """What starting costs in each pass."""
        return self.start_s / self.passes if self.passes else 0.0

    @property
    def epoch_wait_s(self) -> float:
        """Seconds that a whole epoch waits, as far as the batches seen tell."""
        return self.pass_start_s + self.batch_wait_s * self.epoch_batches

    @property
    def epoch_s(self) -> float:
        """Seconds that a whole epoch takes."""
        return self.epoch_wait_s + self.batch_step_s * self.epoch_batches

    @property
    def batch_samples(self) -> float:
        """Samples in a batch, on average."""
        return self.samples / self.batches if self.batches else 0.0

    @property
    def replay_s(self) -> float:
        """Seconds that an epoch would take if batches were free: what no loader can beat."""
        return self.batch_step_s * self.epoch_batches


@dataclass(frozen=True, slots=True)
class Work:
    """The workers' side: every batch that was made for one loader in one trial."""

    batches: int = 0
    samples: int = 0
    samples_s: float = 0.0
    collate_s: float = 0.0
    cpu_s: float = 0.0
    queued_s: float = 0.0  # ready to run, but other threads had the CPUs
    read_nbytes: int = 0
    threads: int = 1  # most of any process that made batches
    durations: tuple[float, ...] = ()  # of each batch, in the order in which they are due

    @property
    def seconds(self) -> float:
        """In the dataset and in collate, over all workers."""
        return self.samples_s + self.collate_s

    @property
    def batch_s(self) -> float:
        """What one worker takes for a batch."""
        return self.seconds / self.batches if self.batches else 0.0

    @property
    def cpu_share(self) -> float:
        """CPU time by time in the dataset and in collate; above 1 where a library runs threads."""
        return self.cpu_s / self.seconds if self.seconds else 0.0

    @property
    def wanted_share(self) -> float:
        """How much of that time it had a CPU or wanted one: on a crowded machine too, computing is 1."""
        return (self.cpu_s + self.queued_s) / self.seconds if self.seconds else 0.0

    def crowding(self, workers: int, cpus: float) -> float:
        """How much longer all takes because others have the CPUs, at most twice; 1 on a quiet machine.

        What the workers take from one another is not counted. Half as much again is usual, since the
        consumer and the workers' own threads need CPUs too, and short waits tell nothing.
        """
        if self.queued_s < QUEUED_S:
            return 1.0
        own = max(1.0, workers / max(cpus, 0.1))
        return min(2.0, max(1.0, (self.cpu_s + self.queued_s) / max(self.cpu_s, 1e-9) / own / 2))

    @property
    def collate_share(self) -> float:
        """How much of the work is collate."""
        return self.collate_s / self.seconds if self.seconds else 0.0

    @property
    def sample_s(self) -> float:
        """What one sample takes, collate included."""
        return self.seconds / self.samples if self.samples else 0.0

    @property
    def sample_read_nbytes(self) -> float:
        """Bytes that a sample reads from files."""
        return self.read_nbytes / self.samples if self.samples else 0.0


def pace(trial: Trial, key: str) -> Pace:
    """The consumer's side of a loader in a trial."""
    passes = [seen for seen in trial.of(key) if seen.batches or seen.waits]
    loader = trial.loader(key)
    if not passes:
        return Pace(length=loader.length if loader else None)
    flowing = list(chain.from_iterable(seen.waits[1:] for seen in passes))[:FULL]
    steps = list(chain.from_iterable(seen.steps for seen in passes))[:FULL]
    batch_wait_s = statistics.fmean(flowing) if flowing else 0.0
    batch_step_s = statistics.fmean(steps) if steps else 0.0
    batches = sum(seen.batches for seen in passes)
    start_s = sum(max(0.0, seen.start_s + sum(seen.waits[:1]) - batch_wait_s) for seen in passes)
    return Pace(
        workers=_workers(trial, key),
        passes=len(passes),
        batches=batches,
        samples=_samples(trial, key, passes),
        start_s=start_s,
        wait_s=start_s + batch_wait_s * batches,
        step_s=batch_step_s * batches,
        batch_wait_s=batch_wait_s,
        batch_step_s=batch_step_s,
        length=None if _breaks_off(trial, passes) else loader.length if loader else None,
    )


def _breaks_off(trial: Trial, passes: Sequence[IteratorSeen]) -> bool:
    """Whether the program itself leaves its passes before their end: what it takes is its epoch."""
    return trial.plan.drive == "script" and any(seen.end == "dropped" for seen in passes)


def _samples(trial: Trial, key: str, passes: Sequence[IteratorSeen]) -> int:
    """Samples in the batches of these passes."""
    told = sum(seen.samples for seen in passes)
    if told:
        return told
    loader = trial.loader(key)
    size = loader.settings.get("batch_size") if loader else None
    return sum(seen.batches for seen in passes) * (size if isinstance(size, int) else 1)


def _workers(trial: Trial, key: str) -> int:
    """num_workers as in force in a trial."""
    changed = trial.plan.change.settings.get("num_workers")
    loader = trial.loader(key)
    own = loader.settings.get("num_workers") if loader else None
    value = own if own is not None else changed
    return value if isinstance(value, int) else 0


def work(trial: Trial, key: str) -> Work:
    """The workers' side of a loader in a trial."""
    fetches = [fetch for fetch in trial.fetches if fetch.loader == key]
    return Work(
        batches=len(fetches),
        samples=sum(len(fetch.indices) for fetch in fetches),
        samples_s=sum(fetch.samples_s for fetch in fetches),
        collate_s=sum(fetch.collate_s for fetch in fetches),
        cpu_s=sum(fetch.cpu_s for fetch in fetches),
        queued_s=sum(fetch.queued_s for fetch in fetches),
        read_nbytes=sum(fetch.read_nbytes for fetch in fetches),
        threads=max((fetch.threads for fetch in fetches), default=1),
        durations=_in_turn(fetches),
    )


def _in_turn(fetches: Sequence[FetchSeen]) -> tuple[float, ...]:
    """How long each batch took, in the order in which they are due: batch k comes from worker k mod n."""
    turns: dict[tuple[int, int], int] = defaultdict(int)
    due: list[tuple[int, int, int, float]] = []
    for fetch in sorted(fetches, key=lambda fetch: fetch.began_s):
        worker = (fetch.iterator, fetch.worker)
        due.append((fetch.iterator, turns[worker], fetch.worker, fetch.samples_s + fetch.collate_s))
        turns[worker] += 1
    return tuple(duration for *_, duration in sorted(due))


def rate(trial: Trial, key: str) -> float | None:
    """Samples per second over a whole epoch, start included; None where no batch came.

    Of a pass that was cut short the rest is reckoned from the batches that came.
    """
    seen = pace(trial, key)
    if trial.outcome != "ok" or not seen.batches or not seen.epoch_s or seen.is_all_first:
        return None
    return seen.batch_samples * seen.epoch_batches / seen.epoch_s


def rates(facts: Facts, key: str) -> dict[int, float]:
    """Samples per second on the ladder, by num_workers: the median of all trials with that number."""
    found: dict[int, list[float]] = defaultdict(list)
    for trial in (*facts.ladder, *facts.timings):
        if trial.plan.loader != key or not _is_a_rung(trial.plan.change):
            continue
        speed = rate(trial, key)
        if speed is not None:
            found[_workers(trial, key)].append(speed)
    return {workers: statistics.median(speeds) for workers, speeds in sorted(found.items())}


def _is_a_rung(change: Change) -> bool:
    """Whether nothing but the number of workers differs."""
    return dataclasses.replace(change, settings={}) == Change() and set(change.settings) <= {"num_workers"}


def idle_cpus(trial: Trial, key: str) -> float | None:
    """CPUs without work while the loader was used; None where nobody watched.

    By the CPU time of the whole tree between the first and the last look at it; the import of torch, which
    comes before, keeps one CPU busy and is left out.
    """
    passes = trial.of(key)
    if not passes:
        return None
    began = min(seen.began_s for seen in passes)
    looks = [seen for seen in trial.vitals if seen.at_s >= began and seen.cpu_s]
    if len(looks) < 2:  # noqa: PLR2004 - a difference needs two
        return None
    used = (looks[-1].cpu_s - looks[0].cpu_s) / max(looks[-1].at_s - looks[0].at_s, 1e-6)
    return max(0.0, trial.host.cpus - used)


def worker_waits(trial: Trial) -> dict[str, float]:
    """Where workers were when somebody looked, as shares: by kernel wait, "" for running."""
    seen = [wait for vitals in trial.vitals for wait in vitals.worker_waits]
    return {wait: seen.count(wait) / len(seen) for wait in set(seen)}


def locked_share(trial: Trial) -> float | None:
    """How often a look found a worker waiting for a lock; None where there were too few looks to tell."""
    if sum(len(vitals.worker_waits) for vitals in trial.vitals) < ENOUGH_LOOKS:
        return None
    return sum(share for wait, share in worker_waits(trial).items() if "futex" in wait or "lock" in wait)


def network_share(trial: Trial) -> float:
    """How often a look found a worker waiting for another process or machine."""
    return sum(
        share
        for wait, share in worker_waits(trial).items()
        if any(name in wait for name in ("poll", "wait_woken", "sk_", "pipe", "nanosleep"))
    )


def busy_share(trial: Trial) -> float | None:
    """How often a look found a worker at work and not waiting for the next indices; None without looks.

    A worker that has nothing to do polls the pipe of its queue.
    """
    waits = worker_waits(trial)
    if sum(len(vitals.worker_waits) for vitals in trial.vitals) < ENOUGH_LOOKS:
        return None
    return 1 - sum(share for wait, share in waits.items() if wait.startswith(IDLE))


# ── Stragglers ──────────────────────────────────────────────────────────────────────────────────────────


def in_order_s(durations: Sequence[float], workers: int, *, prefetch: int = 2, step_s: float = 0.0) -> float:
    """When the last of these batches is delivered if each must wait for those before it.

    As torch does it: batch k is made by worker k mod n, and given out when batch k - n * prefetch was taken.
    """
    free = [0.0] * workers
    taken: list[float] = []
    for number, duration in enumerate(durations):
        due = taken[number - workers * prefetch] if number >= workers * prefetch else 0.0
        ready = max(free[number % workers], due) + duration
        free[number % workers] = ready
        taken.append(max(ready, (taken[-1] + step_s) if taken else 0.0))
    return taken[-1] + step_s if taken else 0.0


def any_order_s(durations: Sequence[float], workers: int, *, step_s: float = 0.0) -> float:
    """The same if whoever is free takes the next batch, and what is ready is delivered."""
    free = [0.0] * workers
    ready = []
    for duration in durations:
        ready.append(heapq.heappop(free) + duration)
        heapq.heappush(free, ready[-1])
    now = 0.0
    for moment in sorted(ready):
        now = max(now, moment) + step_s
    return now


def period(waits: Sequence[float]) -> int | None:
    """How many batches lie between long waits, where they come regularly; None where they do not.

    A wait is long when it is more than four times the median and more than a twentieth of all waiting.
    """
    if not waits:
        return None
    line = max(4 * statistics.median(waits), sum(waits) / 20)
    long = [place for place, wait in enumerate(waits) if wait > line and place]
    gaps = [after - before for before, after in pairwise(long)]
    if len(gaps) < 2:  # noqa: PLR2004 - one gap is no rhythm
        return None
    usual = statistics.mode(gaps)
    return usual if gaps.count(usual) * 2 >= len(gaps) else None
