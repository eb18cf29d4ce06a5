"""PS811 worker-segfault

## What it finds
A worker, or the program itself at num_workers=0, that was ended by SIGSEGV, SIGABRT, SIGBUS, SIGILL or
SIGFPE: a crash in native code.

## Why it matters
There is no Python traceback, and torch names neither the sample nor the library.

## How we know
The signal that ended the process, the sample it had in hand, and its stack where the interpreter could still
write it. A rung at num_workers=0 shows whether the sample crashes without workers too.

## What to do
Load that one sample by itself under `python -X faulthandler`; update or replace the library whose frame comes
up. If it crashes only in forked workers, spawn them.

## When we stay silent
When a full /dev/shm explains the SIGBUS, when the kernel ended the process for its memory, and when the
signal came after the program had ended.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import crash, printed, says
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._clinic.naming import at_place, loader_named, method, sample_named, short
from penstock._clinic.trying import under, without
from penstock._lab.record import Death, LoaderSeen, Site, Trial

_NATIVE = {
    -int(number): number.name
    for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
}
# A /dev/shm so full explains a bus error: a page more, and there is no room for it.
_FULL = 0.9


class WorkerSegfault:
    """Native code crashed."""

    code: ClassVar[str] = "PS811"
    cause: ClassVar[str] = "worker-segfault"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for the first process that a signal of this kind ended."""
        trial = facts.observed
        death = crash(trial) if trial is not None else None
        if trial is None or death is None or death.status not in _NATIVE or _is_of_shm(trial, death):
            return
        loader = trial.loader(death.loader or "") or next(iter(facts.loaders), None)
        yield self._finding(facts, trial, death, loader)

    def _finding(self, facts: Facts, trial: Trial, death: Death, loader: LoaderSeen | None) -> Finding:
        zero = facts.at(loader.key, 0) if loader else None
        at_zero = zero is not None and zero.status in _NATIVE
        only_workers = zero is not None and zero.outcome == "ok"
        site = _site(trial, death)
        who = "the program" if death.worker is None else f"worker {death.worker}"
        name = _NATIVE[death.status or 0]
        also = ", and so does num_workers=0" if at_zero and death.worker is not None else ""
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=(
                f"{who} of {loader_named(loader)} was ended by {name} in native code, at"
                f" {sample_named(death.index)}{at_place(site)}{also}"
            ),
            prescription=_prescription(death, loader, only_workers=only_workers),
            evidence=(
                Evidence("signal", name, "observed run"),
                Evidence("sample in hand", sample_named(death.index), "observed run"),
                Evidence("at num_workers=0", _told(zero, at_zero=at_zero), "ladder"),
                Evidence(
                    "innermost line", short(f"{site.file}:{site.line}") if site else "not known", "stacks"
                ),
            ),
            where=site or (loader.dataset.site if loader else None),
            loader=loader.key if loader else None,
            experiments=_experiments(death, only_workers=only_workers),
            stopped_at_s=death.at_s,
        )


def _is_of_shm(trial: Trial, death: Death) -> bool:
    if death.status != -int(signal.SIGBUS):
        return False
    used = max((each.shm_used for each in trial.vitals), default=0)
    is_full = bool(trial.host.shm_size) and used >= _FULL * trial.host.shm_size
    return is_full or says(trial.stderr.replace("insufficient shared memory", "")) == "shm-exhausted"


def _site(trial: Trial, death: Death) -> Site | None:
    """The innermost line of the user's code, from what faulthandler wrote."""
    dumped = death.stack or trial.stderr.partition("Fatal Python error")[2]
    text = dumped.partition("most recent call first")[2] or dumped
    raised = printed("Traceback (most recent call last):\n" + "\n".join(reversed(_frames(text))) + "\nDied")
    return raised[0].site if raised else None


def _frames(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.strip().startswith('File "')]
    return [line.replace(" in ", ", in ", 1) if ", in " not in line else line for line in lines]


def _told(zero: Trial | None, *, at_zero: bool) -> str:
    if zero is None:
        return "not tried"
    return "crashes too" if at_zero else zero.outcome


def _prescription(death: Death, loader: LoaderSeen | None, *, only_workers: bool) -> Prescription:
    if only_workers:
        return Prescription(method(loader, "spawn"), "native libraries start afresh in each worker")
    return Prescription(
        f"load {sample_named(death.index)} by itself under `python -X faulthandler`; replace the library that"
        " crashes, or leave that sample out",
        "the sample loads, or raises an exception that can be caught",
    )


def _experiments(death: Death, *, only_workers: bool) -> tuple[Experiment, ...]:
    return (under("spawn"),) if only_workers else without(death.index)
