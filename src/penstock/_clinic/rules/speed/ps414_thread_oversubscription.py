"""PS414 thread-oversubscription

## What it finds
Workers in which a library (OpenMP, OpenBLAS, MKL, OpenCV …) runs a pool of threads of its own, so that
there are many more threads than CPUs.

## Why it matters
Threads of different workers push each other off the CPUs, and wait for each other at every barrier.

## How we know
Threads of a worker, beyond those that torch needs, by the number of workers and of CPUs. The experiment
runs the same loader with one thread in each library. It is a warning only if that was at least 1.5 times as
fast.

## What to do
One thread in each worker: `torch.set_num_threads(1)` and `cv2.setNumThreads(0)` in `worker_init_fn`, and
`OMP_NUM_THREADS=1`, `OPENBLAS_NUM_THREADS=1`, `MKL_NUM_THREADS=1` in the environment.

## When we stay silent
When there is a CPU for every thread, when CPUs are idle, when the program hardly waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.slowness import WORTH, WORTH_SHARE, Slow, percent, slow_loaders
from penstock._lab.plan import Change

# Threads that every worker of torch has: its own, the queue's feeder and the resource sharer.
TORCH = 3
# Less than so many threads for a CPU does little harm.
CROWDED = 2.0
# Workers that are pushed off the CPUs use most of these together.
BUSY = 0.5


class ThreadOversubscription:
    """Libraries run more threads in workers than there are CPUs."""

    code: ClassVar[str] = "PS414"
    cause: ClassVar[str] = "thread-oversubscription"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose workers crowd the CPUs."""
        for slow in slow_loaders(facts):
            threads = 1 + max(0, slow.work.threads - TORCH)
            crowd = threads * slow.workers / slow.cpus
            is_crowded = threads > 1 and crowd >= CROWDED and slow.cpu_share >= BUSY
            if is_crowded and slow.is_worth_a_trial and slow.flow_share >= WORTH_SHARE:
                yield self._finding(slow, threads)

    def _finding(self, slow: Slow, threads: int) -> Finding:
        site = slow.loader.dataset.site or slow.loader.site
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="observed",
            message=(
                f"{slow.workers} workers with {threads} computing threads each crowd {slow.cpus:g} CPUs, and "
                f"training waits for data {percent(slow.pace.wait_share)} of the time"
            ),
            where=site,
            loader=slow.loader.key,
            evidence=(
                Evidence(
                    "threads of a worker",
                    f"{slow.work.threads}, of which {TORCH} are torch's",
                    "observed run",
                ),
                Evidence("CPUs by affinity and quota", f"{slow.cpus:g}", "host"),
                slow.wait,
                *slow.ladder,
            ),
            prescription=Prescription(
                change="set one thread for each library in worker_init_fn: torch.set_num_threads(1), "
                "cv2.setNumThreads(0), threadpoolctl.threadpool_limits(1)",
                expect="workers no longer push each other off the CPUs",
                fix=Fix("one-thread-in-worker", slow.loader.site, {"loader": slow.loader.name}),
            ),
            experiments=(
                Experiment(
                    title="the same loader with one thread in each library",
                    change=Change(mends=("one-thread",)),
                    measure="faster",
                    ratio=WORTH,
                ),
            ),
        )
