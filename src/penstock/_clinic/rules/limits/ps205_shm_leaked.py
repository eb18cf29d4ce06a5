"""PS205 shm-leaked

## What it finds
Files in `/dev/shm` that nobody will remove: left by this program, or by earlier ones that are dead.

## Why it matters
`/dev/shm` is memory. What is left in it stays until the machine restarts, and later programs fail for want of
room. With the sharing strategy `file_system` every tensor has a file with a name there, which a process that
is killed leaves behind; so does a dataset that makes `SharedMemory` and does not unlink it.

## How we know
Names that are in `/dev/shm` after the program has ended by itself, were not before, and were made by one of
its processes; or Python's own count of what was leaked. Where the mount is full, names of the program's own
dead processes count when they had taken a good part of it before anything failed; names from earlier
programs count when their maker is dead and they take a good part of the mount.

## What to do
Leave the sharing strategy at `file_descriptor`; call `unlink()` on each `SharedMemory`; remove what dead
processes left.

## When we stay silent
When the program was ended by the exam, so that it had no chance to clean up, and when little is left.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic import amounts
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.shortage import is_out_of_shm
from penstock._lab.plan import Change
from penstock._lab.record import LoaderSeen, Trial
from penstock._lab.residue import maker

_TRACKER = re.compile(r"(\d+) leaked shared_memory objects?")

# What Python calls the segments of `SharedMemory`, and how many of them are no accident.
OWN, SEVERAL = "psm_", 8
# Crews of workers that must have left names: the last one may leave what it was filling when it was ended.
CREWS = 2
# Of the mount, taken by dead programs: from there on the next program feels it.
CROWDED = 0.25


class ShmLeaked:
    """Shared memory that stays behind."""

    code: ClassVar[str] = "PS205"
    cause: ClassVar[str] = "shm-leaked"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield what this program leaves, then what others have left."""
        trial = facts.observed
        if trial is None:
            return
        # torch leaves the names of files that it could not fill, and so does whoever is killed by SIGBUS:
        # then a full mount is the cause (PS201), unless names of the program's own have filled it.
        is_full = is_out_of_shm(trial)
        own = _by_crews(trial) or (
            _crowding(trial) or _left(trial, only=OWN) if is_full else _left(trial) or _tracked(trial)
        )
        if own is not None:
            yield self._finding(facts, own, is_full=is_full)
        elif trial.host.shm_size and trial.host.shm_stale_nbytes >= CROWDED * trial.host.shm_size:
            yield self._stale(trial)

    def _finding(self, facts: Facts, evidence: Evidence, *, is_full: bool) -> Finding:
        loader = _named_files(facts)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error" if is_full else "warning",
            message=f"the program leaves shared memory behind: {evidence.value}",
            prescription=_prescription(loader),
            evidence=(evidence, *_strategy(loader)),
            where=loader.site if loader is not None else None,
            loader=loader.key if loader is not None else None,
            experiments=_experiments(loader),
        )

    def _stale(self, trial: Trial) -> Finding:
        host = trial.host
        names = amounts.listed(host.shm_stale, 3)
        stops = is_out_of_shm(trial)
        empty = Experiment("the same, /dev/shm empty", Change(shm_bytes=host.shm_size), drive="script")
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error" if stops else "warning",
            message=(
                f"{amounts.count(len(host.shm_stale), 'file')} of dead processes take "
                f"{amounts.size(host.shm_stale_nbytes)} of the {amounts.size(host.shm_size)} of /dev/shm"
            ),
            prescription=Prescription(
                change=f"remove what dead processes left: {names}",
                expect=f"{amounts.size(host.shm_stale_nbytes)} of /dev/shm are free again",
            ),
            evidence=(
                Evidence("files of dead processes", names, "host"),
                Evidence("free room in /dev/shm", amounts.size(host.shm_free), "host"),
            ),
            experiments=(empty,) if stops else (),
            stopped_at_s=trial.seconds if stops else None,
        )


def _left(trial: Trial, *, only: str = "") -> Evidence | None:
    """Names left by a program that ended on its own: one that the exam ended could not clean up.

    `only` those that begin so, and then several: a worker that dies leaves the one that it was filling.
    For the same reason one name for a process is no leak where torch removes names as soon as they are made.
    """
    left = [name for name in trial.left_shm if name.startswith(only)]
    if not any(seen.sharing_strategy == "file_system" for seen in trial.loaders):
        by_maker = Counter(map(maker, left))
        left = [name for name in left if maker(name) is None or by_maker[maker(name)] > 1]
    if len(left) < (SEVERAL if only else 1) or trial.ended_by != "itself":
        return None
    named = f"{amounts.count(len(left), 'file')} ({amounts.listed(left, 3)})"
    return Evidence("left in /dev/shm", named, "observed run")


def _by_crews(trial: Trial) -> Evidence | None:
    """Names left by the workers of pass after pass: what each of them leaves adds up in a running program."""
    crew = max((int(seen.settings.get("num_workers") or 0) for seen in trial.loaders), default=0)
    if trial.orphaned_by <= CREWS * max(1, crew):
        return None
    files = amounts.count(len(trial.orphaned_shm), "file")
    named = f"{files} of {trial.orphaned_by} processes that are no more"
    return Evidence("left in /dev/shm", named, "observed run")


def _crowding(trial: Trial) -> Evidence | None:
    """Names left by its own dead processes that took much of the mount before it was full."""
    if not trial.host.shm_size or trial.orphaned_nbytes < CROWDED * trial.host.shm_size:
        return None
    room = f"{amounts.size(trial.orphaned_nbytes)} of the {amounts.size(trial.host.shm_size)}"
    return Evidence("left in /dev/shm", f"{room} were taken by processes that are no more", "observed run")


def _tracked(trial: Trial) -> Evidence | None:
    found = _TRACKER.search(trial.stderr)
    if found is None:
        return None
    return Evidence(
        "said by Python's resource tracker", f"{found[1]} shared_memory objects leaked", "observed run"
    )


def _named_files(facts: Facts) -> LoaderSeen | None:
    return next((seen for seen in facts.loaders if seen.sharing_strategy == "file_system"), None)


def _strategy(loader: LoaderSeen | None) -> tuple[Evidence, ...]:
    if loader is None:
        return ()
    return (Evidence("sharing strategy", loader.sharing_strategy, "settings"),)


def _experiments(loader: LoaderSeen | None) -> tuple[Experiment, ...]:
    if loader is None:
        return ()
    return (
        Experiment(
            title="the same program with the sharing strategy file_descriptor",
            change=Change(mends=("share-by-descriptor",)),
            drive="script",
        ),
    )


def _prescription(loader: LoaderSeen | None) -> Prescription:
    if loader is not None:
        return Prescription(
            change="set_sharing_strategy('file_system') → set_sharing_strategy('file_descriptor')",
            expect="no tensor has a file with a name, so none can stay behind",
            fix=Fix("sharing-strategy", loader.site, {"new": "file_descriptor"}),
        )
    return Prescription(
        change="call `close()` and `unlink()` on each SharedMemory when its last user is done",
        expect="shared memory is as empty after the program as before it",
    )
