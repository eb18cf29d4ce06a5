"""PS215 prefetch-memory

## What it finds
A `prefetch_factor` that keeps more batches ready than memory or `/dev/shm` has room for.

## Why it matters
`prefetch_factor` counts batches for each worker. Eight workers with a factor of 16 keep 128 batches ready;
the consumer needs one at a time. It ends with a full `/dev/shm` (PS201) or a killed worker (PS211).

## How we know
`num_workers x prefetch_factor x bytes of a batch`, set against `/dev/shm` and the limit of memory, where a
factor of 2, which is torch's own, would leave room. The experiment runs the same loader with less ahead.

## What to do
Leave `prefetch_factor` out, or set it to 2. If the consumer waits, more workers help, not more batches ahead.

## When we stay silent
When the factor is torch's own, when what is kept ready is small beside the room there is, and when `/dev/shm`
is full though batches alone would not fill it (PS201).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic import amounts
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._clinic.inflight import PREFETCH, InFlight, in_flight, set_option
from penstock._clinic.naming import loader_named, option
from penstock._clinic.shortage import is_out_of_memory, is_out_of_shm
from penstock._lab.plan import Change
from penstock._lab.record import LoaderSeen, Trial

# Of /dev/shm, or of the memory there is, kept ready: from here on the program, its model and its page cache
# feel it.
CROWDED_SHM = 0.5
CROWDED_MEMORY = 0.25
# A sum that surprises on any machine, kept ready for a consumer that takes one batch at a time, and
# how many times torch's own factor was asked for.
MUCH, MANY = 768 << 20, 4


class PrefetchMemory:
    """Too many batches are kept ready."""

    code: ClassVar[str] = "PS215"
    cause: ClassVar[str] = "prefetch-memory"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader that keeps too many bytes ready."""
        trial = facts.observed
        if trial is None:
            return
        for loader in facts.loaders:
            ahead = in_flight(facts, loader)
            if ahead.workers and ahead.prefetch > PREFETCH and _is_too_much(trial, ahead):
                yield self._finding(trial, loader, ahead)

    def _finding(self, trial: Trial, loader: LoaderSeen, ahead: InFlight) -> Finding:
        stops = is_out_of_shm(trial) or is_out_of_memory(trial)
        fewer = InFlight(ahead.workers, PREFETCH, ahead.batch_nbytes, length=ahead.length)
        room = trial.host.shm_size
        of = f", where /dev/shm has {amounts.size(room)}" if room else ""
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error" if stops else "warning",
            message=(
                f"{loader_named(loader)} keeps {amounts.size(ahead.nbytes)} of batches ready "
                f"({ahead.formula()} x {amounts.size(ahead.batch_nbytes)}){of}"
            ),
            prescription=Prescription(
                change=option(loader, "prefetch_factor", PREFETCH),
                expect=f"at most {amounts.size(fewer.nbytes)} are kept ready",
                fix=set_option(loader, "prefetch_factor", PREFETCH),
            ),
            evidence=tuple(_evidence(trial, ahead)),
            where=loader.site,
            loader=loader.key,
            experiments=(
                Experiment(
                    title=f"the same loader with prefetch_factor={PREFETCH}",
                    change=Change(settings={"prefetch_factor": PREFETCH}),
                    measure="gone" if stops else "smaller",
                ),
            ),
            stopped_at_s=trial.seconds if stops else None,
        )


def _is_too_much(trial: Trial, ahead: InFlight) -> bool:
    """Whether it is more than there is room for, and torch's own factor would be less."""
    fewer = InFlight(ahead.workers, PREFETCH, ahead.batch_nbytes, length=ahead.length).nbytes
    # Where an experiment has given it more, that is the room it had.
    shm, memory = trial.plan.change.shm_bytes or trial.host.shm_size, trial.host.memory_limit
    if shm and ahead.nbytes >= CROWDED_SHM * shm > fewer:
        return not is_out_of_shm(trial) or _fills(ahead, shm)
    if memory and ahead.nbytes >= CROWDED_MEMORY * memory > fewer:
        return True
    return ahead.nbytes >= MUCH > fewer and ahead.prefetch >= MANY * PREFETCH


def _fills(ahead: InFlight, room: int) -> bool:
    """Whether batches alone want that much: those ahead, one in each worker's hands and the consumer's."""
    return ahead.nbytes + (ahead.workers + 1) * ahead.batch_nbytes >= room


def _evidence(trial: Trial, ahead: InFlight) -> Iterator[Evidence]:
    value = f"{ahead.formula()} x {amounts.size(ahead.batch_nbytes)} = {amounts.size(ahead.nbytes)}"
    yield Evidence("batches kept ready", value, "settings")
    most = max((seen.shm_used for seen in trial.vitals), default=0)
    if most:
        yield Evidence("most of /dev/shm in use", amounts.size(most), "observed run")
    if trial.host.shm_size:
        yield Evidence("size of /dev/shm", amounts.size(trial.host.shm_size), "host")
    if trial.host.memory_limit:
        yield Evidence("limit of memory", amounts.size(trial.host.memory_limit), "host")
