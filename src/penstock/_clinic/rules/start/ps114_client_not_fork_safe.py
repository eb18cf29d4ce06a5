"""PS114 client-not-fork-safe

## What it finds
A client of a service (fsspec, s3fs, gcsfs, boto3, grpc, a database, an HTTP session, or a class of one's own
that keeps a socket) that was made before the workers were forked, and is used in them.

## Why it matters
Its event loop or background thread does not exist in the worker, which waits for ever; or all workers talk
over one connection and take each other's answers.

## How we know
The library's own refusal; or stacks: the worker waits inside the client, or for a thread that only the parent
has; or a connection among what workers get, with failures or wrong samples that do not occur without workers.
The proof makes the client again in each worker, or its threads or connections; or runs the loader under
spawn, where each worker has its own.

## What to do
Make the client in each worker: in `worker_init_fn`, or when it is first used.

## When we stay silent
When the client is used and nothing goes wrong, when the same happens at num_workers=0, and when workers take
each other's answers from a socket that the dataset itself keeps (PS115).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.agreement import agreement
from penstock._clinic.connections import client_of, connection
from penstock._clinic.facts import Facts
from penstock._clinic.failures import Case, cases, claimed_by, method_of, workers_of
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.hang import Hang, Stuck, dead_thing, hangs, judge, stuck_line
from penstock._clinic.naming import at_place, loader_named, method, place, sample_named, short
from penstock._clinic.trying import can_ship, mended, under
from penstock._lab.record import LoaderSeen, Site, Thing


class ClientNotForkSafe:
    """Workers use a client that belongs to the process they were forked from."""

    code: ClassVar[str] = "PS114"
    cause: ClassVar[str] = "client-not-fork-safe"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding: the refusal first, then the hang, then what goes wrong only in workers."""
        found = next(iter((*self._refused(facts), *self._hung(facts), *self._crossed(facts))), None)
        if found is not None:
            yield found

    def _refused(self, facts: Facts) -> Iterator[Finding]:
        for case in cases(facts):
            if case.is_caught or method_of(case.trial, case.loader) != "fork":
                continue
            is_own = claimed_by(case.failure) == self.cause
            thing = client_of(case.loader)
            if is_own or (thing is not None and case.passes_at_zero and case.failure.phase == "sample"):
                yield self._failed(case, thing)

    def _failed(self, case: Case, thing: Thing | None) -> Finding:
        failure = case.failure
        what = f"`{thing.path}`" if thing else "a client"
        text = short(f"{failure.type}: {failure.text}", 90)
        message = f"{what} was made before the fork and fails in workers{at_place(failure.site)}: {text}"
        evidence = (
            Evidence("failure in a worker", short(f"{failure.type}: {failure.text}"), "observed run"),
            Evidence(
                "the same sample at num_workers=0", "loads" if case.passes_at_zero else "not tried", "ladder"
            ),
        )
        return self._finding(case.loader, message, evidence, failure.site, failure.at_s)

    def _hung(self, facts: Facts) -> Iterator[Finding]:
        for hang in hangs(facts):
            stuck, loader = hang.first, hang.loader_in(facts)
            if stuck is None or stuck.worker is None or method_of(hang.trial, loader) != "fork":
                continue
            zero = facts.at(hang.loader or "", 0)
            if zero is not None and judge(zero) is not None:
                continue
            if _waits_in_client(facts, hang, stuck, loader):
                yield self._waits(facts, hang, stuck, loader)

    def _waits(self, facts: Facts, hang: Hang, stuck: Stuck, loader: LoaderSeen | None) -> Finding:
        line = stuck_line(stuck, facts.source)
        doing = f"`{short(line, 60)}`" if line else f"a client{at_place(stuck.site)}"
        message = (
            f"{stuck.named} waits for ever in {doing}, whose client was made before the worker was forked"
        )
        evidence = (
            Evidence(f"{stuck.named} waits at", place(stuck.site) or "a library", "stacks"),
            Evidence("innermost function", stuck.inner.function if stuck.inner else "?", "stacks"),
            Evidence("kind of wait", stuck.wait, "stacks"),
            Evidence("sample in hand", sample_named(stuck.index), "stacks"),
        )
        return self._finding(loader, message, evidence, stuck.site, hang.since_s)

    def _crossed(self, facts: Facts) -> Iterator[Finding]:
        for loader in facts.loaders:
            thing, observed = client_of(loader), facts.observed
            if thing is None or observed is None or method_of(observed, loader) != "fork":
                continue
            seen = agreement(facts, loader.key)
            if workers_of(observed, loader) > 1 and seen.is_wrong:
                message = (
                    f"{len(seen.wrong)} of {seen.checked} samples of {loader_named(loader)} differ from"
                    f" num_workers=0: all workers talk over the one connection of `{thing.path}`"
                )
                evidence = (
                    Evidence("samples that differ", f"{len(seen.wrong)} of {seen.checked}", "samples"),
                    Evidence("connection in the dataset", f"{thing.path} ({thing.type})", "observed run"),
                )
                yield self._finding(loader, message, evidence, thing.site or loader.dataset.site, None)

    def _finding(
        self,
        loader: LoaderSeen | None,
        message: str,
        evidence: tuple[Evidence, ...],
        where: Site | None,
        at_s: float | None,
    ) -> Finding:
        thing = connection(loader)
        named = f"`{thing.path}`" if thing else "the client"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=message,
            prescription=Prescription(
                f"make {named} in each worker, when it is first used; or {method(loader, 'spawn')}",
                "each worker has a loop and connections of its own",
                fix=Fix("reopen-in-worker", where, {"path": thing.path} if thing else {}),
            ),
            evidence=evidence,
            where=where,
            loader=loader.key if loader else None,
            experiments=_experiments(loader),
            stopped_at_s=at_s,
        )


def _experiments(loader: LoaderSeen | None) -> tuple[Experiment, ...]:
    again = mended("restart-threads", "threads of the program started again in each worker")
    opened = mended("reopen-handles", "connections made again in each worker")
    made = mended("rebuild-clients", "the client made again in each worker")
    inside = (made, opened, again) if connection(loader) else (made, again, opened)
    return (*inside, under("spawn")) if can_ship(loader) else inside


def _waits_in_client(facts: Facts, hang: Hang, stuck: Stuck, loader: LoaderSeen | None) -> bool:
    if hang.signature == "lock":
        return dead_thing(stuck, facts.source, has_threads=False, has_locks=False) == "client"
    zero = facts.at(hang.loader or "", 0)
    passes_at_zero = zero is not None and zero.outcome == "ok"
    return hang.signature == "read" and connection(loader) is not None and passes_at_zero
