"""PS113 cuda-before-fork

## What it finds
CUDA used in forked workers of a program that had used CUDA before: calls in the dataset, or tensors on the
device that the dataset keeps.

## Why it matters
A CUDA context does not survive a fork. The worker fails with "Cannot re-initialize CUDA in forked
subprocess".

## How we know
torch's own words, or tensors on a device among what forked workers get.

## What to do
Keep the dataset on the CPU and move batches in the training loop; or start workers by spawn.

## When we stay silent
Without workers, under spawn and forkserver, and when nothing of the dataset is on a device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import Case, cases, claimed_by, method_of, workers_of
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription
from penstock._clinic.naming import at_place, loader_named, method, short
from penstock._clinic.trying import under
from penstock._lab.record import LoaderSeen, Thing


class CudaBeforeFork:
    """Forked workers use a device that their parent has used."""

    code: ClassVar[str] = "PS113"
    cause: ClassVar[str] = "cuda-before-fork"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding where torch refused, else where tensors on a device go to forked workers."""
        for case in cases(facts):
            if claimed_by(case.failure) == self.cause and not case.is_caught:
                yield self._refused(case)
                return
        for loader in facts.loaders:
            observed = facts.observed
            if observed is None or workers_of(observed, loader) == 0 or method_of(observed, loader) != "fork":
                continue
            for thing in loader.things:
                if thing.kind == "cuda-tensor":
                    yield self._kept(loader, thing)
                    break

    def _refused(self, case: Case) -> Finding:
        site = case.failure.site
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=(
                f"a forked worker of {loader_named(case.loader)} uses CUDA{at_place(site)}, which its parent"
                " has used before"
            ),
            prescription=_prescription(case.loader),
            evidence=(Evidence("what torch said", short(case.failure.text), "observed run"),),
            where=site,
            loader=case.loader.key if case.loader else None,
            experiments=(under("spawn"),),
            stopped_at_s=case.failure.at_s,
        )

    def _kept(self, loader: LoaderSeen, thing: Thing) -> Finding:
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            message=f"`{thing.path}` is on a device and goes to forked workers of {loader_named(loader)}",
            prescription=_prescription(loader),
            evidence=(Evidence("tensor on a device", f"{thing.path} ({thing.type})", "observed run"),),
            where=thing.site or loader.site,
            loader=loader.key,
            confidence="suspected",
            experiments=(under("spawn"),),
        )


def _prescription(loader: LoaderSeen | None) -> Prescription:
    return Prescription(
        f"keep the dataset on the CPU and move batches in the training loop; or {method(loader, 'spawn')}",
        "workers never touch the device",
        fix=Fix("set-option", loader.site if loader else None, {"multiprocessing_context": "spawn"}),
    )
