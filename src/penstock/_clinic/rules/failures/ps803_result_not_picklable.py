"""PS803 result-not-picklable

## What it finds
A batch that cannot be sent from a worker to the program: it holds a generator, a lambda, an open file, an
object of a local class; or it can be sent and not be rebuilt.

## Why it matters
The thread that sends batches prints a traceback to stderr and drops the batch. The program waits for it for
ever, or until `timeout`, which names no reason.

## How we know
The feeder thread's traceback with pickle's refusal; and stacks: every worker idle, none dead, the program
waiting for a batch. No sample had raised before. At num_workers=0 nothing is pickled and it works.

## What to do
Return plain data: tensors, arrays, numbers, strings, lists and dicts of these.

## When we stay silent
When an exception of the dataset was what could not be sent (PS804), and when a limit of the machine stopped
the feeder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import Raised, claimed_by, fed, method_of, printed, refuses, root, says, unsent
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription
from penstock._clinic.hang import judge, timed_out
from penstock._clinic.naming import loader_named, short
from penstock._clinic.trying import mended, ours, with_workers
from penstock._lab.record import LoaderSeen, Trial

_TRANSPORT = re.compile(
    r"exited unexpectedly|killed by signal|timed out|Connection|Pipe|EOFError|FileNotFound|OSError|\bEmpty\b"
)
_TYPE = re.compile(r"(?:cannot|can't) pickle (?:local object )?'?<?([^'>]+?)'?(?: object)?$", re.IGNORECASE)


class ResultNotPicklable:
    """What workers return cannot travel."""

    code: ClassVar[str] = "PS803"
    cause: ClassVar[str] = "result-not-picklable"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding where a feeder refused a batch, or the program could not rebuild one."""
        trial = facts.observed
        if trial is None or trial.outcome == "ok":
            return
        refused = _refused(trial)
        if refused is None:
            return
        hang = judge(trial)
        key = (hang.loader if hang else None) or _failed_loader(trial)
        loader = trial.loader(key or "") or next(iter(facts.loaders), None)
        stopped = hang.since_s if hang else _stopped(trial)
        yield self._finding(trial, loader, refused, stopped)

    def _finding(self, trial: Trial, loader: LoaderSeen | None, refused: Raised, at_s: float) -> Finding:
        what = _named(refused)
        ending = "waits for ever" if trial.outcome == "hang" else "gave up" if timed_out(trial) else "stopped"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=(
                f"workers of {loader_named(loader)} return {what}, which cannot be pickled: the batch was"
                f" lost, and the program {ending}"
            ),
            prescription=Prescription(
                f"return plain data from the dataset and `collate_fn` in the place of {what}",
                "batches arrive with any number of workers",
                fix=Fix("plain-result", loader.dataset.site if loader else None),
            ),
            evidence=(
                Evidence(
                    "what the feeder thread said", short(f"{refused.type}: {refused.text}"), "observed run"
                ),
                Evidence("workers", "idle, none dead" if trial.outcome == "hang" else "-", "stacks"),
                Evidence("start method", method_of(trial, loader), "settings"),
            ),
            where=(loader.dataset.site or loader.site) if loader else None,
            loader=loader.key if loader else None,
            experiments=(
                mended("plain-results", "what cannot be pickled in a batch replaced by its text"),
                with_workers(0),
            ),
            remedy=ours(),
            stopped_at_s=at_s,
        )


def _refused(trial: Trial) -> Raised | None:
    for each in fed(trial):
        text = f"{each.type}: {each.text}"
        if says(text) is None and refuses(text) and unsent(trial, each) is None:
            return each
    return _not_rebuilt(trial)


def _not_rebuilt(trial: Trial) -> Raised | None:
    """A batch that arrived, and that pickle could not rebuild in the program."""
    failure = root(trial)
    if failure is None or failure.phase not in {"next", "program"} or claimed_by(failure) is not None:
        return None
    for each in printed(failure.traceback):
        is_arriving = each.passes("_try_get_data") and each.passes("get")
        is_at_the_end = any(frame.file.endswith("queues.py") for frame in each.frames[-4:])
        if is_arriving and is_at_the_end and not _is_of_transport(each):
            return each
    return None


def _is_of_transport(raised: Raised) -> bool:
    """Whether the way itself broke: a worker is gone, a socket closed."""
    return bool(_TRANSPORT.search(f"{raised.type}: {raised.text}"))


def _failed_loader(trial: Trial) -> str | None:
    return next((each.loader for each in trial.failures if each.loader), None)


def _stopped(trial: Trial) -> float:
    failure = root(trial)
    return failure.at_s if failure else trial.seconds


def _named(refused: Raised) -> str:
    match = _TYPE.search(refused.text.strip())
    return f"`{match[1].strip()}`" if match else "something"
