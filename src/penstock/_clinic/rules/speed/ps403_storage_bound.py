"""PS403 storage-bound

## What it finds
A loader whose workers spend their time waiting for reads: of a disk, a network file system, a server.

## Why it matters
The CPUs and the accelerator idle while bytes are on their way.

## How we know
In the dataset the workers use little CPU time, and they read; the experiment gives the dataset's samples
from memory the second time. It is a warning only if that was at least 1.5 times as fast.

## What to do
Bring the data nearer (a local copy, fewer and larger files), keep what was read in memory, or let more
workers wait side by side.

## When we stay silent
When the program hardly waits, when the workers compute (PS402), when they read next to nothing, when they
wait for a lock of their own (PS409).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._clinic.slowness import WORTH, WORTH_SHARE, Slow, percent, seconds, slow_loaders
from penstock._lab.plan import Change

# A sample that reads less than this waits for something else: a sleep, a lock, another process.
READS_NBYTES = 512
# What comes over a network is not counted as read: workers are found waiting for it instead.
NETWORK = 0.5
# Reading is a part of every training: it must cost more than a start of workers does.
LONG = 2


class StorageBound:
    """Workers wait for reads, and training waits for them."""

    code: ClassVar[str] = "PS403"
    cause: ClassVar[str] = "storage-bound"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose workers wait for reads."""
        for slow in slow_loaders(facts):
            if slow.is_worth_a_trial and _waits_for_reads(slow):
                yield self._finding(slow)

    def _finding(self, slow: Slow) -> Finding:
        waiting = percent(1 - min(1.0, slow.work.cpu_share))
        who = f"{slow.workers} workers" if slow.workers else "the dataset"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="suspected",
            message=(
                f"training waits for data {percent(slow.pace.wait_share)} of the time, and {who} "
                f"wait for reads {waiting} of theirs".replace("the dataset wait", "the dataset waits")
            ),
            where=slow.loader.dataset.site or slow.loader.site,
            loader=slow.loader.key,
            evidence=(
                slow.wait,
                Evidence(
                    "a sample",
                    f"{seconds(slow.work.sample_s)}, {percent(slow.work.cpu_share)} of it CPU time, "
                    f"{slow.work.sample_read_nbytes:,.0f} bytes read",
                    "observed run",
                ),
                *slow.ladder,
            ),
            prescription=Prescription(
                change="read from faster storage: copy the data to a local disk, pack small files into large "
                "ones, or keep samples in memory once they are read",
                expect="workers compute instead of waiting",
            ),
            experiments=(
                Experiment(
                    title="the same samples, given from memory",
                    change=Change(mends=("cached-samples",)),
                    measure="faster",
                    ratio=WORTH,
                    epochs=2,
                ),
            ),
        )


def _waits_for_reads(slow: Slow) -> bool:
    reads = slow.work.sample_read_nbytes >= READS_NBYTES
    if not slow.waits or not (reads or (slow.workers and slow.network_share >= NETWORK)):
        return False
    # What the start of workers takes is no reading.
    if slow.lock is not None or slow.flow_s < LONG * slow.worth_s or slow.flow_share < WORTH_SHARE:
        return False
    return slow.makes_batches_all_the_time
