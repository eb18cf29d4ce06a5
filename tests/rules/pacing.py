"""Facts about how fast a program went, written down."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from penstock._clinic.facts import Facts
from penstock._lab.plan import Change, Plan
from penstock._lab.record import (
    DatasetSeen,
    FetchSeen,
    HostSeen,
    IteratorSeen,
    LoaderSeen,
    SampleSeen,
    Site,
    Thing,
    Trial,
    Vitals,
)

KEY = "train.py:31#0"
BEGAN_S = 4.0  # when the first pass begins


@dataclass(frozen=True, slots=True)
class Program:
    """A program with one loader: what each batch costs, on both sides."""

    workers: int = 2
    cpus: float = 2.0
    cores_seen: int = 1
    passes: int = 1
    batches: int = 100  # of each pass
    length: int | None = 100
    end: str = "exhausted"
    start_s: float = 0.05
    first_wait_s: float | None = None
    wait_s: float = 0.05
    step_s: float = 0.001
    batch_size: int = 16
    made_s: float = 0.1  # a batch, in a worker
    collate_s: float = 0.0
    cpu_share: float = 1.0  # of that
    read_nbytes: int = 0
    threads: int = 3
    tensors: int = 2
    nbytes: int = 10_000
    pickled: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    things: tuple[Thing, ...] = ()
    rates: dict[int, float] = field(default_factory=dict)  # samples/s on the ladder
    slow_batches: dict[int, float] = field(default_factory=dict)  # by number: seconds in the worker
    used_cpus: float | None = None
    worker_waits: tuple[str, ...] = ()
    is_iterable: bool = False
    has_cuda: bool = False

    def but(self, **changes: Any) -> Program:
        """The same program, but for this."""
        return dataclasses.replace(self, **changes)

    @property
    def loader(self) -> LoaderSeen:
        """Its loader."""
        settings = {
            "num_workers": self.workers,
            "batch_size": self.batch_size,
            "persistent_workers": False,
            "pin_memory": False,
            "prefetch_factor": 2 if self.workers else None,
            "in_order": True,
        }
        return LoaderSeen(
            key=KEY,
            site=Site("train.py", 31),
            name="loader",
            settings={**settings, **self.settings},
            dataset=DatasetSeen(type="Images", site=Site("train.py", 5), is_iterable=self.is_iterable),
            things=self.things,
            length=self.length,
        )

    @property
    def facts(self) -> Facts:
        """What the doctor would know of it."""
        return Facts(observed=self.trial, ladder=tuple(self._rung(*each) for each in self.rates.items()))

    @property
    def trial(self) -> Trial:
        """Its observed run."""
        iterators = tuple(self._pass(number) for number in range(self.passes))
        return Trial(
            seconds=BEGAN_S + sum(map(_seconds, iterators)),
            host=HostSeen(cpus=self.cpus, cores_seen=self.cores_seen, has_cuda=self.has_cuda),
            loaders=(self.loader,),
            iterators=iterators,
            fetches=tuple(self._fetches()),
            samples=tuple(self._samples()),
            vitals=self._vitals(),
        )

    @property
    def made_again(self) -> Facts:
        """The same, with a new loader for each pass, on the same line."""
        trial = self.trial
        keys = [f"{KEY[:-1]}{number}" for number in range(self.passes)]
        return Facts(
            observed=dataclasses.replace(
                trial,
                loaders=tuple(dataclasses.replace(self.loader, key=key) for key in keys),
                iterators=tuple(
                    dataclasses.replace(each, loader=key, number=0, workers=self._pids(100 * number))
                    for number, (each, key) in enumerate(zip(trial.iterators, keys, strict=True), start=2)
                ),
            )
        )

    def _pass(self, number: int) -> IteratorSeen:
        first = self.wait_s if self.first_wait_s is None else self.first_wait_s
        waits = (first, *(self.wait_s for _ in range(self.batches - 1)))
        seen = IteratorSeen(
            loader=KEY,
            number=number,
            start_s=self.start_s,
            batches=self.batches,
            waits=waits,
            steps=(self.step_s,) * self.batches,
            end=self.end,
            workers=self._pids(100),
            tensors_per_batch=self.tensors,
            batch_nbytes=self.nbytes,
            pickled_nbytes=self.pickled,
            samples=self.batches * self.batch_size,
        )
        return dataclasses.replace(seen, began_s=BEGAN_S + number * _seconds(seen))

    def _pids(self, first: int) -> tuple[int, ...]:
        return tuple(range(first, first + self.workers))

    def _fetches(self) -> list[FetchSeen]:
        return [
            FetchSeen(
                loader=KEY,
                worker=number % self.workers if self.workers else -1,
                indices=tuple(range(number * self.batch_size, (number + 1) * self.batch_size)),
                began_s=float(number),
                samples_s=self._made(number) - self.collate_s,
                collate_s=self.collate_s,
                cpu_s=self._made(number) * self.cpu_share,
                read_nbytes=self.read_nbytes * self.batch_size,
                threads=self.threads,
            )
            for number in range(self.batches)
        ]

    def _made(self, number: int) -> float:
        return self.slow_batches.get(number, self.made_s)

    def _samples(self) -> list[SampleSeen]:
        usual = self.made_s / self.batch_size
        return [
            SampleSeen(
                loader=KEY,
                index=number * self.batch_size + place,
                seconds=self._made(number) - self.made_s
                if number in self.slow_batches and not place
                else usual,
            )
            for number in range(self.batches)
            for place in range(self.batch_size)
        ]

    def _vitals(self) -> tuple[Vitals, ...]:
        if self.used_cpus is None and not self.worker_waits:
            return ()
        used = self.used_cpus or 0.0
        return tuple(
            Vitals(at_s=BEGAN_S + second, cpu_s=3.0 + used * second, worker_waits=self.worker_waits)
            for second in range(4)
        )

    def _rung(self, workers: int, rate: float) -> Trial:
        seen = IteratorSeen(
            loader=KEY,
            batches=self.batches,
            waits=(self.batch_size / rate,) * self.batches,
            samples=self.batches * self.batch_size,
        )
        loader = self.but(workers=workers).loader
        plan = Plan(drive="loader", loader=KEY, change=Change(settings={"num_workers": workers}))
        return Trial(plan=plan, loaders=(loader,), iterators=(seen,))


def _seconds(seen: IteratorSeen) -> float:
    return seen.start_s + sum(seen.waits) + sum(seen.steps)
