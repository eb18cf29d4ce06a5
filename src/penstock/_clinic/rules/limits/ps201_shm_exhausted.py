"""PS201 shm-exhausted

## What it finds
A `/dev/shm` that is too small for the batches that workers keep ready.

## Why it matters
Workers hand batches over in files of `/dev/shm`. When it is full, torch raises "No space left on device"
(default collate), or hangs for ever with that text on standard error (a collate function of your own), or a
worker is killed by SIGBUS. Containers give it 64 MB unless told otherwise.

## How we know
A worker said so or died by SIGBUS; or the program hangs while `/dev/shm` is full. The formula
`num_workers x prefetch_factor x bytes of a batch` is set against the size of the mount. The experiment runs
the same loader with a larger `/dev/shm` of its own and changes nothing else.

## What to do
Give the container more (`docker run --shm-size=2g`, `--ipc=host`), or keep fewer bytes ready: a smaller
`prefetch_factor`, fewer workers. The prescription says which is enough.

## When we stay silent
When a disk is full and not `/dev/shm`, and when a worker died by SIGBUS on a machine whose `/dev/shm` was
never near full: a mapped file that was cut short does that too.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic import amounts
from penstock._clinic.facts import Facts
from penstock._clinic.failures import worker_deaths
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._clinic.inflight import InFlight, in_flight, set_option
from penstock._clinic.naming import loader_named, option
from penstock._clinic.said import Said, loader_of, said
from penstock._lab.plan import Change
from penstock._lab.record import LoaderSeen, Trial

# torch writes "strerror (errno)", Python "[Errno n] strerror": the latter may speak of any disk.
_TORCH = re.compile(
    r"unable to (?:allocate shared memory|write to file </torch|resize file </torch|mmap .*</torch).*"
    r"(?:No space left|\(28\))|unable to allocate shared memory|No space left on device \(28\)"
    r"|insufficient shared memory"
)
_ERRNO = re.compile(r"\[Errno 28\]")
_SHARED = re.compile(r"/dev/shm|SemLock|shared_memory|multiprocessing/heap\.py|/psm_|/pym-")  # noqa: S108 - read, not made

# Used bytes are looked at a few times a second, and a worker that dies gives its own back at once: a mount
# that was seen this full was full between two looks.
FULL = 0.85
# A SIGBUS without such a look counts only where the mount is of a container's size.
SMALL = 256 << 20
# What the experiment gives: enough for any loader that a trial can fill in its time.
PLENTY = 4 << 30
# Of the mount: batches that take less do not fill it.
LITTLE = 0.25
# Of the mount that a prescription may fill: the consumer holds a batch or two besides those in flight.
SPARE = 0.8


class ShmExhausted:
    """Batches in flight do not fit into /dev/shm."""

    code: ClassVar[str] = "PS201"
    cause: ClassVar[str] = "shm-exhausted"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding when shared memory ran out."""
        for trial in facts.trials:
            found = _said(trial) or _killed(trial) or _hung(trial)
            if found is not None:
                yield self._finding(facts, trial, found)
                return

    def _finding(self, facts: Facts, trial: Trial, found: Said) -> Finding:
        loader = loader_of(facts, trial, found.failure)
        ahead = in_flight(facts, loader) if loader is not None else InFlight(0, 0, 0)
        mount = trial.host.shm_size
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=_message(loader, ahead, trial),
            prescription=_prescription(loader, ahead, mount),
            evidence=tuple(_evidence(trial, found, ahead)),
            where=loader.site if loader is not None else None,
            loader=loader.key if loader is not None else None,
            experiments=(
                Experiment(
                    title=f"the same loader with a /dev/shm of {amounts.size(_plenty(ahead))}",
                    change=Change(shm_bytes=_plenty(ahead)),
                    drive="loader" if loader is not None else "script",
                ),
            ),
            remedy=_remedy(loader, ahead, mount),
            stopped_at_s=_when(trial, found),
        )


# ---- signs --------------------------------------------------------------------------------------


def _said(trial: Trial) -> Said | None:
    found = said(trial, _TORCH)
    if found is not None:
        return found
    found = said(trial, _ERRNO)
    if found is None:
        return None
    whole = found.line if found.failure is None else f"{found.failure.text}\n{found.failure.traceback}"
    return found if _SHARED.search(whole) else None


def _killed(trial: Trial) -> Said | None:
    buses = [each for each in worker_deaths(trial) if each.status == -signal.SIGBUS]
    is_plausible = _most_used(trial) >= FULL * trial.host.shm_size or 0 < trial.host.shm_size <= SMALL
    return Said(f"worker {buses[0].worker} was killed by SIGBUS", trial) if buses and is_plausible else None


def _hung(trial: Trial) -> Said | None:
    if trial.outcome != "hang" or not trial.host.shm_size:
        return None
    used = _most_used(trial)
    return Said("the program hangs", trial) if used >= FULL * trial.host.shm_size else None


def _most_used(trial: Trial) -> int:
    return max((seen.shm_used for seen in trial.vitals), default=0)


def _when(trial: Trial, found: Said) -> float | None:
    if found.failure is not None:
        return found.failure.at_s
    waits = [seen.waiting_since_s for seen in trial.iterators if seen.waiting_since_s is not None]
    deaths = [each.at_s for each in worker_deaths(trial)]
    return min((*waits, *deaths), default=trial.seconds)


# ---- words --------------------------------------------------------------------------------------


def _message(loader: LoaderSeen | None, ahead: InFlight, trial: Trial) -> str:
    what = "hangs because" if trial.outcome == "hang" else "fails because"
    mount = amounts.size(trial.host.shm_size) if trial.host.shm_size else "its size"
    need = ""
    if _is_elsewhere(ahead, trial.host.shm_size):
        whole = amounts.size(ahead.nbytes)
        return (
            f"{loader_named(loader)} {what} /dev/shm ({mount}) is full: its batches in flight take {whole}, "
            "and the dataset puts more there itself"
        )
    if ahead.nbytes:
        batch, whole = amounts.size(ahead.batch_nbytes), amounts.size(ahead.nbytes)
        need = f": {ahead.formula()} x {batch} want {whole}"
    return f"{loader_named(loader)} {what} /dev/shm ({mount}) is too small for the batches in flight{need}"


def _evidence(trial: Trial, found: Said, ahead: InFlight) -> Iterator[Evidence]:
    yield Evidence("what was said", found.line, found.source if found.failure else "observed run")
    if trial.host.shm_size:
        yield Evidence("size of /dev/shm", amounts.size(trial.host.shm_size), "host")
    if _most_used(trial):
        yield Evidence("most of /dev/shm in use", amounts.size(_most_used(trial)), "observed run")
    if ahead.nbytes:
        value = f"{ahead.formula()} x {amounts.size(ahead.batch_nbytes)} = {amounts.size(ahead.nbytes)}"
        yield Evidence("batches in flight", value, "settings")


def _plenty(ahead: InFlight) -> int:
    return max(PLENTY, 4 * ahead.nbytes)


def _prescription(loader: LoaderSeen | None, ahead: InFlight, mount: int) -> Prescription:
    wanted = _gigabytes(2 * ahead.nbytes)
    larger = f"`docker run --shm-size={wanted}g` or `--ipc=host`"
    smaller = _smaller(ahead, mount)
    if loader is None or smaller is None:
        return Prescription(
            change=f"give /dev/shm at least {wanted} GB: {larger}",
            expect="the loader runs to its end with the settings that it has",
        )
    name, value = smaller
    return Prescription(
        change=f"{option(loader, name, value)}; or give /dev/shm {wanted} GB: {larger}",
        expect=f"at most {amounts.size(_at(ahead, name, value))} are in flight, of {amounts.size(mount)}",
        fix=set_option(loader, name, value),
    )


def _remedy(loader: LoaderSeen | None, ahead: InFlight, mount: int) -> Experiment | None:
    smaller = _smaller(ahead, mount)
    if loader is None or smaller is None:
        return None
    name, value = smaller
    return Experiment(f"the same loader with {name}={value}", Change(settings={name: value}))


def _is_elsewhere(ahead: InFlight, mount: int) -> bool:
    """Whether batches take but little of the mount: then something else fills it."""
    return 0 < ahead.nbytes < LITTLE * mount


def _smaller(ahead: InFlight, mount: int) -> tuple[str, int] | None:
    """The option that makes the batches in flight fit: fewer ahead, else fewer workers."""
    room = SPARE * mount
    if not ahead.batch_nbytes or not room or _is_elsewhere(ahead, mount):
        return None
    for prefetch in range(ahead.prefetch - 1, 0, -1):
        if _at(ahead, "prefetch_factor", prefetch) <= room:
            return "prefetch_factor", prefetch
    for workers in range(ahead.workers - 1, 0, -1):
        if _at(ahead, "num_workers", workers) <= room:
            return "num_workers", workers
    return None


def _at(ahead: InFlight, name: str, value: int) -> int:
    """Bytes in flight with another value of one option, and one batch in the consumer's hands."""
    workers = value if name == "num_workers" else ahead.workers
    prefetch = value if name == "prefetch_factor" else ahead.prefetch
    return (workers * prefetch + 1) * ahead.batch_nbytes


def _gigabytes(nbytes: int) -> int:
    return max(1, -(-nbytes // (1 << 30)))
