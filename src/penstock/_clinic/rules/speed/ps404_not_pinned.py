"""PS404 not-pinned

## What it finds
A program on a machine with CUDA whose loader hands out batches in pageable memory.

## Why it matters
A copy from pageable memory to the device goes through a buffer of the driver and stops the program until it
is done; from pinned memory it runs beside the training step.

## How we know
The option `pin_memory`, the size of a batch, and that CUDA is there. The experiment runs the program with
`pin_memory=True`. It is a warning only if that was at least 1.5 times as fast.

## What to do
`pin_memory=True`, and `tensor.to(device, non_blocking=True)`.

## When we stay silent
Without CUDA, when batches are small, when the loader pins already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.amounts import size
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.slowness import WORTH
from penstock._lab.plan import Change
from penstock._lab.record import LoaderSeen

# A copy of less takes a small part of a millisecond, pinned or not.
LARGE_NBYTES = 1 << 20


class NotPinned:
    """Batches for a device are not in pinned memory."""

    code: ClassVar[str] = "PS404"
    cause: ClassVar[str] = "not-pinned"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader with large batches in pageable memory."""
        if not facts.host.has_cuda:
            return
        for loader in facts.loaders:
            nbytes = max((seen.batch_nbytes for seen in facts.passes(loader.key)), default=0)
            if nbytes >= LARGE_NBYTES and not loader.settings.get("pin_memory"):
                yield self._finding(loader, nbytes)

    def _finding(self, loader: LoaderSeen, nbytes: int) -> Finding:
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="suspected",
            message=f"batches of {size(nbytes)} are copied to the device from pageable memory",
            where=loader.site,
            loader=loader.key,
            evidence=(
                Evidence("pin_memory", "False", "settings"),
                Evidence("batch", size(nbytes), "observed run"),
            ),
            prescription=Prescription(
                change="pin_memory=False → pin_memory=True, and copy with non_blocking=True",
                expect="copies to the device run beside the training step",
                fix=Fix("set-option", loader.site, {"option": "pin_memory", "old": False, "new": True}),
            ),
            experiments=(
                Experiment(
                    title="the program with pin_memory=True",
                    change=Change(settings={"pin_memory": True}),
                    measure="faster",
                    ratio=WORTH,
                    drive="script",
                ),
            ),
        )
