"""PS113 cuda-before-fork

## What it finds
A dataset, or a collate function, that moves data to the GPU in a forked worker.

## Why it matters
CUDA does not survive a fork: "Cannot re-initialize CUDA in forked subprocess". Fresh workers could, but each
then holds a CUDA context of its own (hundreds of megabytes), and the copy gains nothing.

## How we know
The source calls `.cuda()` or `.to("cuda")` in `__getitem__`, in what that calls, or in `collate_fn`, and a
loader with workers and no start method of its own uses it; or `__init__` puts data on the GPU that
`__getitem__` reads.

## What to do
Return CPU tensors, pass `pin_memory=True`, and move the batch in the training loop with `non_blocking=True`.

## When we stay silent
When the loader has `num_workers=0` or fresh workers, and when the device cannot be told from the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import ClassRead, Place
from penstock._clinic.reading.module import FUNCTIONS, Module
from penstock._clinic.reading.patterns import FETCHING, calls, keyword, quoted
from penstock._clinic.reading.program import FORKING, LoaderMade, Program, program, site


class CudaBeforeFork:
    """Forked workers use the GPU."""

    code: ClassVar[str] = "PS113"
    cause: ClassVar[str] = "cuda-before-fork"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each such call."""
        if facts.source is None:
            return
        read = program(facts.source)
        for loader in read.loaders:
            if not loader.workers or loader.start not in FORKING:
                continue
            for place in _in_worker(read, loader):
                yield from (
                    self._finding(call, place.module)
                    for call in calls(place)
                    if _moves(read, call, place.module)
                )
            for dataset in loader.datasets:
                yield from (self._finding(call, module) for call, module in _kept(read, dataset))

    def _finding(self, call: ast.expr, module: Module) -> Finding:
        return suspicion(
            self,
            site(module, call),
            "this uses the GPU in a forked worker, where CUDA cannot be initialised",
            Prescription(
                change="return CPU tensors, and move the batch in the training loop",
                expect="workers never touch CUDA",
            ),
            ("in what workers run or hold", quoted(module, call)),
            severity="error",
        )


def _in_worker(read: Program, loader: LoaderMade) -> Iterator[Place]:
    for dataset in loader.datasets:
        yield from dataset.reach(*FETCHING)
    value = loader.options.get("collate_fn")
    found = read.values.definition(value.node, value.module) if value and value.node else None
    if found is not None and isinstance(found.node, FUNCTIONS):
        yield Place(found.node, found.module)


def _kept(read: Program, dataset: ClassRead) -> Iterator[tuple[ast.expr, Module]]:
    """Data that `__init__` puts on the GPU and that samples are made of."""
    fetching = dataset.reach(*FETCHING)
    for each in dataset.made():
        is_moved = isinstance(each.value, ast.Call) and _moves(read, each.value, each.module)
        if is_moved and any(True for _ in dataset.uses(each.attribute, fetching)):
            yield each.value, each.module


def _moves(read: Program, call: ast.Call, module: Module) -> bool:
    """`x.cuda()`, `x.to("cuda")`, `torch.zeros(3, device="cuda")`."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda":
        return not module.dotted(call.func).startswith("torch.")
    device = keyword(call, "device")
    if isinstance(call.func, ast.Attribute) and call.func.attr == "to" and call.args:
        device = call.args[0]
    return device is not None and _is_cuda(read, device, module)


def _is_cuda(read: Program, device: ast.expr, module: Module) -> bool:
    """Whether a device is one of CUDA, at least where there is a GPU."""
    for value in read.values.of(device, module):
        node = value.node
        if isinstance(node, ast.Call) and value.module.dotted(node.func) == "torch.device" and node.args:
            node = node.args[0]
        if any(text.startswith("cuda") for text in read.values.texts(node, value.module)):
            return True
    return False
