"""PS104 tensor-freed-while-pickling

## What it finds
A `torch.Generator` kept in a dataset that is sent to fresh workers.

## Why it matters
To pickle a generator, torch makes a tensor of its state, shares it and frees it before the worker has opened
it. The worker dies while it starts: "unable to resize file <filename not specified> to the right size".

## How we know
The source keeps the generator in an attribute, and sets `spawn` or `forkserver` for the loader. (A
`__getstate__` that makes tensors does the same; only a run shows that.)

## What to do
Keep the seed, and make the generator in the worker, on first use or in `worker_init_fn`.

## When we stay silent
When the start method is fork or not known, when `num_workers=0`, and when the class has `__getstate__`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.patterns import made_by, quoted
from penstock._clinic.reading.program import program, site


class TensorFreedWhilePickling:
    """A generator cannot travel to a fresh worker."""

    code: ClassVar[str] = "PS104"
    cause: ClassVar[str] = "tensor-freed-while-pickling"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each generator."""
        if facts.source is None:
            return
        read = program(facts.source)
        for dataset in read.datasets:
            loaders = read.ships(dataset)
            if not loaders or {"__getstate__", "__reduce__", "__reduce_ex__"} & dataset.methods.keys():
                continue
            for each in dataset.made():
                made = made_by(each.value, each.module)
                if made is not None and made[0] == "torch.Generator":
                    yield suspicion(
                        self,
                        site(each.module, each.node),
                        f"`{dataset.name}.{each.attribute}` is a torch.Generator: the tensor of its state is "
                        f"freed while `{loaders[0].start}` pickles it, and workers die at their start",
                        Prescription(
                            change="keep the seed, and make the generator on first use in the worker",
                            expect="workers start",
                        ),
                        ("made before workers start", quoted(each.module, each.node)),
                        ("start method", loaders[0].start),
                        severity="error",
                    )
