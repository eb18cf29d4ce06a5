"""PS115 handle-shared-across-fork

## What it finds
A file, archive or database that was opened before the workers were forked and is read in them: a plain file
with `seek` and `read`, a ZipFile, a TarFile, an open npz, LMDB, HDF5 or SQLite handle; or a
socket that the dataset keeps.

## Why it matters
A fork shares one file offset between all workers. While one has sought and not yet read, another seeks
elsewhere: samples are silently wrong, or archives fail with a bad checksum. The rate is low and depends on
the load, so that a clean epoch proves nothing. LMDB, HDF5 and SQLite keep state that must not be shared
either. Of a socket, or of a pipe to a helper program, one worker reads the answer that another waits for.

## How we know
The handle among the dataset's attributes, opened before the fork; its shared offset moved while only workers
read; samples of workers that differ from those without workers; failures that do not occur at num_workers=0.
The proof opens each handle again in every worker.

## What to do
Open the file in each worker, when it is first used; or read with `os.pread`, which has no offset.

## When we stay silent
Without workers, with a single one, under spawn (there the handle cannot travel), when workers do not use the
handle or use it without its offset, when it is only written to, when each process keeps one under its own
number, and when a lock of multiprocessing guards it and no sample differs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.agreement import Agreement, agreement
from penstock._clinic.connections import bare_socket
from penstock._clinic.facts import Facts
from penstock._clinic.failures import Case, cases, claimed_by, method_of, workers_of
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription, Severity
from penstock._clinic.hang import Hang, hangs, shared_pipe
from penstock._clinic.naming import loader_named, place, sample_named, short
from penstock._clinic.trying import mended, ours
from penstock._lab.plan import Change
from penstock._lab.record import LoaderSeen, Thing

# Their reads go through one offset of the kernel.
_OFFSET = frozenset({"open-file", "archive"})
# What one worker asks for, another may read.
_SOCKET = "socket"
# Their libraries keep state in the process that opened them.
_STATEFUL = frozenset({"hdf5", "lmdb", "database"})
_FEWEST_TO_RACE = 2

_REOPENED = mended("reopen-handles", "every handle opened again in each worker")
# The race is rare in a short run: a pause after each seek shows what the shared offset does.
_WIDENED = dataclasses.replace(_REOPENED, measure="same", base=Change(mends=("widen-races",)))
# Random samples cannot be compared; but an archive that is read at the wrong place fails.
_FAILING = dataclasses.replace(_WIDENED, measure="gone")


class HandleSharedAcrossFork:
    """Workers read through one handle, and move it under each other."""

    code: ClassVar[str] = "PS115"
    cause: ClassVar[str] = "handle-shared-across-fork"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader: of its failure, of wrong samples, or of the shared offset."""
        hang = next(hangs(facts), None)
        pipe = shared_pipe(facts, hang) if hang is not None else None
        if hang is not None and pipe is not None:
            yield from self._stolen(facts, hang, pipe)
            return
        failed = {case.loader.key: case for case in cases(facts) if case.loader and _is_of_workers(case)}
        for loader in facts.loaders:
            observed = facts.observed
            if observed is None or workers_of(observed, loader) == 0 or method_of(observed, loader) != "fork":
                continue
            thing = _handle(loader)
            case = failed.get(loader.key)
            if thing is None:
                continue
            if case is not None:
                yield self._failed(loader, thing, case)
            elif workers_of(observed, loader) >= _FEWEST_TO_RACE:
                yield from self._silent(facts, loader, thing)

    def _stolen(self, facts: Facts, hang: Hang, pipe: Thing) -> Iterator[Finding]:
        loader, stuck = hang.loader_in(facts), hang.first
        if loader is None or stuck is None:
            return
        message = (
            f"{stuck.named} waits for ever for an answer from `{pipe.path}`, opened before the fork:"
            " another worker has read it"
        )
        evidence = (
            Evidence(f"{stuck.named} waits at", place(stuck.site) or "a line of a library", "stacks"),
            Evidence("the same loader at num_workers=0", "loads", "ladder"),
        )
        alone = Experiment(
            title="the same loader with 1 worker, which has it for itself",
            change=Change(settings={"num_workers": 1}),
        )
        yield dataclasses.replace(
            self._finding(loader, pipe, message, evidence),
            prescription=Prescription(
                f"open `{pipe.path}` in each worker, when it is first used there",
                "every worker has a pipe of its own, and its answers reach it",
                fix=Fix("lazy-open", pipe.site, {"path": pipe.path}),
            ),
            experiments=(alone,),
            stopped_at_s=hang.since_s,
        )

    def _failed(self, loader: LoaderSeen, thing: Thing, case: Case) -> Finding:
        failure = case.failure
        message = (
            f"`{thing.path}` was opened before the fork, and workers that read it together fail"
            f" at {sample_named(failure.index)}: {short(f'{failure.type}: {failure.text}', 90)}"
        )
        evidence = (
            Evidence("failure in a worker", short(f"{failure.type}: {failure.text}"), "observed run"),
            Evidence("the same loader at num_workers=0", "loads" if case.passes_at_zero else "?", "ladder"),
        )
        finding = self._finding(loader, thing, message, evidence)
        return dataclasses.replace(finding, experiments=_experiments(thing), stopped_at_s=failure.at_s)

    def _silent(self, facts: Facts, loader: LoaderSeen, thing: Thing) -> Iterator[Finding]:
        seen = agreement(facts, loader.key)
        if seen.is_wrong:
            yield self._wrong(loader, thing, seen)
        elif thing.kind in _OFFSET and thing.offset_moved and "r" in (thing.mode or "r"):
            is_guarded = any(each.kind == "mp-lock" for each in loader.things)
            yield self._races(loader, thing, severity="info" if is_guarded else "error")
        elif thing.kind in _STATEFUL and f"[{loader.pid}]" not in thing.path:  # else it is its own
            is_sure = thing.kind == "hdf5" and "[" not in thing.path
            yield self._races(loader, thing, severity="warning" if is_sure else "info")

    def _wrong(self, loader: LoaderSeen, thing: Thing, seen: Agreement) -> Finding:
        share = f"{len(seen.wrong)} of {seen.checked}"
        message = (
            f"{share} samples of {loader_named(loader)} are silently wrong: its workers share one offset of"
            f" `{thing.path}`, opened before the fork"
        )
        if thing.kind == _SOCKET:
            message = (
                f"{share} samples of {loader_named(loader)} are silently wrong: its workers talk over one"
                f" connection, `{thing.path}`, made before the fork, and take each other's answers"
            )
        evidence = (
            Evidence("samples that differ from num_workers=0", share, "samples"),
            Evidence("for example", ", ".join(sample_named(each) for each in seen.wrong[:3]), "samples"),
        )
        finding = self._finding(loader, thing, message, evidence)
        tried = tuple(dataclasses.replace(each, measure="same", epochs=2) for each in _experiments(thing))
        return dataclasses.replace(finding, experiments=tried)

    def _races(self, loader: LoaderSeen, thing: Thing, *, severity: Severity) -> Finding:
        workers = loader.settings.get("num_workers")
        is_offset = thing.kind in _OFFSET
        shared = "one file offset" if is_offset else "one handle"
        message = (
            f"the {workers} workers of {loader_named(loader)} read through {shared} of `{thing.path}`,"
            " opened before they were forked: samples may silently be wrong"
        )
        evidence = (
            Evidence("shared offset", "moved while only workers read" if is_offset else "-", "observed run"),
            Evidence("samples that differ from num_workers=0", "none in this short run", "samples"),
        )
        return dataclasses.replace(
            self._finding(loader, thing, message, evidence),
            severity=severity,
            confidence="observed" if is_offset else "suspected",
            experiments=(_WIDENED, _FAILING) if is_offset else (),
        )

    def _finding(
        self, loader: LoaderSeen, thing: Thing, message: str, evidence: tuple[Evidence, ...]
    ) -> Finding:
        opened = f"{thing.path} ({thing.type}) {thing.detail}".strip()
        change = f"open `{thing.path}` in each worker, when it is first used there"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=message,
            prescription=Prescription(
                change if thing.kind == _SOCKET else f"{change}; or read it with os.pread",
                f"every worker has {_own(thing)}, and samples are those of num_workers=0",
                fix=Fix("lazy-open", thing.site, {"path": thing.path}),
            ),
            evidence=(Evidence("handle opened before the fork", opened, "observed run"), *evidence),
            where=thing.site or loader.dataset.site or loader.site,
            loader=loader.key,
            remedy=ours(),
        )


def _own(thing: Thing) -> str:
    return "a connection of its own" if thing.kind == _SOCKET else "an offset of its own"


def _experiments(thing: Thing) -> tuple[Experiment, ...]:
    if thing.kind != _SOCKET:
        return (_REOPENED,)
    return mended("rebuild-clients", "what holds the socket made again in each worker"), _REOPENED


def _handle(loader: LoaderSeen) -> Thing | None:
    """The handle that matters most: one that workers move, then any with an offset, then others."""
    handles = [thing for thing in loader.things if thing.kind in _OFFSET | _STATEFUL]
    first = min(handles, key=lambda each: (not each.offset_moved, each.kind in _STATEFUL), default=None)
    return first or bare_socket(loader)


def _is_of_workers(case: Case) -> bool:
    """Whether a sample fails in workers and not without them, for no reason that says its own name."""
    if case.is_caught or case.workers == 0 or claimed_by(case.failure) is not None:
        return False
    thing = _handle(case.loader) if case.loader else None
    if thing is None or case.failure.phase not in {"sample", "collate"}:
        return False
    names_library = thing.kind in _STATEFUL and thing.type.partition(".")[0] in case.failure.type
    return case.passes_at_zero or (names_library and case.at_zero is None)
