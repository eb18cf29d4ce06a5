"""PS409 lock-serialises-workers

## What it finds
A dataset with a lock of `multiprocessing` that all workers share and take for each sample, so that one
works while the others wait.

## Why it matters
Any number of workers is as fast as one. Workers are processes: what each reads by itself needs no lock, and
what they share (a handle opened before the fork) is not repaired by one.

## How we know
The lock hangs on the dataset; workers spend their time waiting, not computing; on the ladder the number of
workers changes little. The experiment runs the same loader with locks that let everybody in. It is a
warning only if that was at least 1.5 times as fast.

## What to do
Remove the lock; let each worker open its own files.

## When we stay silent
When no lock is shared, when the program hardly waits, when workers compute all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.slowness import WORTH, Slow, percent, slow_loaders
from penstock._lab.plan import Change
from penstock._lab.record import Thing

# Workers that hold each other up use less of the CPU time that they could have than this.
HELD_UP = 0.85
# Workers that are less than so much faster than one process alone bring nothing; two should bring 2.
SCALES = 1.4
# So much of the looks at workers must have found them waiting for a lock, where no lock is known by name.
LOCKED_SHARE = 0.3


class LockSerialisesWorkers:
    """A shared lock lets one worker work at a time."""

    code: ClassVar[str] = "PS409"
    cause: ClassVar[str] = "lock-serialises-workers"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose workers wait for a lock that they share."""
        for slow in slow_loaders(facts):
            locked = slow.locked_share or 0.0
            if not slow.is_worth_a_trial or not _is_serial(slow):
                continue
            if slow.lock is not None or locked >= LOCKED_SHARE:
                yield self._finding(slow, slow.lock, locked)

    def _finding(self, slow: Slow, lock: Thing | None, locked: float) -> Finding:
        name = lock.path if lock else "a lock"
        site = (lock.site if lock else None) or slow.loader.dataset.site or slow.loader.site
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="observed",
            message=(
                f"{slow.workers} workers wait for one another at {name}, and training waits for data "
                f"{percent(slow.pace.wait_share)} of the time"
            ),
            where=site,
            loader=slow.loader.key,
            evidence=tuple(_evidence(slow, lock, locked)),
            prescription=Prescription(
                change=f"remove {name} from the dataset: workers are processes, and each reads by itself",
                expect="workers make batches side by side",
                fix=Fix("remove-lock", site, {"path": name}) if lock else None,
            ),
            experiments=(
                Experiment(
                    title="the same loader with locks that let everybody in",
                    change=Change(mends=("no-locks",)),
                    measure="faster",
                    ratio=WORTH,
                ),
            ),
        )


def _is_serial(slow: Slow) -> bool:
    if slow.workers < 2 or slow.cpu_share >= HELD_UP:  # noqa: PLR2004 - one has nobody to wait for
        return False
    own, one = slow.rates.get(slow.workers), max(slow.rates.get(0, 0.0), slow.rates.get(1, 0.0))
    return slow.makes_batches_all_the_time and (not own or not one or own < SCALES * one)


def _evidence(slow: Slow, lock: Thing | None, locked: float) -> Iterator[Evidence]:
    if lock:
        yield Evidence("lock", f"{lock.path} ({lock.type})", "settings")
    if locked:
        yield Evidence("looks that found a worker waiting for a lock", percent(locked), "observed run")
    yield Evidence("CPU share of the workers", percent(slow.work.cpu_share), "observed run")
    yield slow.wait
    yield from slow.ladder
