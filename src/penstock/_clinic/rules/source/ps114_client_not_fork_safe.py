"""PS114 client-not-fork-safe

## What it finds
A client of a remote store or database (boto3, s3fs, gcsfs, gRPC, MongoDB, PostgreSQL …) that a dataset makes
in `__init__` and uses in `__getitem__`.

## Why it matters
Forked workers share its connections, and lose the threads and event loops that serve it: answers go to the
wrong worker, or a worker waits for ever.

## How we know
The source makes the client before there are workers, and uses it in them; nothing makes it again there.

## What to do
Make the client on first use in each process, or in `worker_init_fn`:

    @property
    def client(self):
        if self._client is None or self._pid != os.getpid():
            self._client, self._pid = boto3.client("s3"), os.getpid()
        return self._client

## When we stay silent
When every loader of the dataset has `num_workers=0`, fresh workers or a `worker_init_fn`, and when the client
is made again in the worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Fix, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import Assignment, ClassRead, Place
from penstock._clinic.reading.patterns import CLIENTS, a, is_none, made_by, quoted
from penstock._clinic.reading.program import program, site


class ClientNotForkSafe:
    """Workers share the connections of one client."""

    code: ClassVar[str] = "PS114"
    cause: ClassVar[str] = "client-not-fork-safe"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each client."""
        if facts.source is None:
            return
        read = program(facts.source)
        for dataset in read.datasets:
            loaders = read.forks(dataset)
            if loaders is None or (loaders and all("worker_init_fn" in each.options for each in loaders)):
                continue
            for owner, roots in read.held(dataset):
                fetching = owner.reach(*roots)
                for each in owner.made():
                    made = made_by(each.value, each.module)
                    kind = CLIENTS.get(made[0]) if made else None
                    if kind is not None and _is_used(owner, each, fetching):
                        yield self._finding(owner, each, kind)

    def _finding(self, dataset: ClassRead, each: Assignment, kind: str) -> Finding:
        return suspicion(
            self,
            site(each.module, each.node),
            f"`{dataset.name}.{each.attribute}` is {a(kind)} made in `{each.method.name}`: forked workers "
            "share its connections and lose its threads",
            Prescription(
                change=f"make `self.{each.attribute}` on first use in each process",
                expect="every worker has connections of its own",
                fix=Fix("lazy-open", site(each.module, each.node), {"attribute": each.attribute}),
            ),
            ("made before workers start", quoted(each.module, each.node)),
        )


def _is_used(dataset: ClassRead, each: Assignment, fetching: list[Place]) -> bool:
    """Whether workers use what was made before them, and do not make their own."""
    functions = {place.function for place in fetching}
    for one in dataset.assigned(each.attribute):
        if one.method in functions or (one.node.lineno > each.node.lineno and is_none(one.value)):
            return False
    return any(True for _ in dataset.uses(each.attribute, fetching))
