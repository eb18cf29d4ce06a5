"""PS215 prefetch-memory

## What it finds
A loader that may have very many batches ready at once.

## Why it matters
Each worker makes `prefetch_factor` batches ahead (2 by default): `num_workers` × `prefetch_factor` batches
lie in shared memory. With large batches that fills `/dev/shm` or the memory limit.

## How we know
The product of the two numbers in the source. How large a batch is, only a run can tell: this is a remark.

## What to do
Lower `prefetch_factor`; more than a few batches per worker do not make a loader faster.

## When we stay silent
When the product is below 64 batches, or not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Fix, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.patterns import quoted
from penstock._clinic.reading.program import program, site

# Batches in flight; 16 workers with 4 each. More has no use, whatever the machine.
MANY = 64
USUAL = 2


class PrefetchMemory:
    """Very many batches are made ahead."""

    code: ClassVar[str] = "PS215"
    cause: ClassVar[str] = "prefetch-memory"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one remark for each loader."""
        if facts.source is None:
            return
        read = program(facts.source)
        for loader in read.loaders:
            value = loader.options.get("prefetch_factor")
            ahead = read.values.integer(value.node, value.module) if value else None
            if ahead is None or ahead <= USUAL or ahead * (loader.workers or 0) < MANY:
                continue
            batches = ahead * (loader.workers or 0)
            yield suspicion(
                self,
                site(loader.module, loader.node),
                f"up to {batches} batches are ready at once ({loader.workers} workers with {ahead} each)",
                Prescription(
                    change=f"prefetch_factor={ahead} → prefetch_factor={USUAL}",
                    expect="less memory at the same speed",
                    fix=Fix("set-option", site(loader.module, loader.node), {"prefetch_factor": USUAL}),
                ),
                ("options", quoted(loader.module, loader.node)),
                severity="info",
            )
