"""PS104 tensor-freed-while-pickling

## What it finds
A tensor that exists only while the dataset is pickled: the state of a `torch.Generator` kept as an attribute,
or one that `__getstate__` builds.

## Why it matters
torch ships a tensor as a descriptor of shared memory. One that is freed before the new worker has taken its
descriptor leaves a number that means something else by then; the worker ends with "unable to resize file".

## How we know
The worker's own words, workers started by spawn or forkserver, and the generator that the walk over the
dataset found. The proof keeps every tensor alive while workers start.

## What to do
Keep no `torch.Generator` in the dataset: make it in `worker_init_fn`, or when it is first used.

## When we stay silent
Under fork nothing is shipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import cases, method_of, start_trouble
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription
from penstock._clinic.naming import loader_named, short
from penstock._clinic.trying import mended, ours, under
from penstock._lab.record import LoaderSeen, Thing


class TensorFreedWhilePickling:
    """A tensor made for the pickle is gone before the worker has it."""

    code: ClassVar[str] = "PS104"
    cause: ClassVar[str] = "tensor-freed-while-pickling"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding where a worker found a descriptor that was no longer its own."""
        for case in cases(facts):
            trouble = start_trouble(case.trial)
            how = method_of(case.trial, case.loader)
            if how == "fork" or case.is_caught or trouble is None or trouble.cause != self.cause:
                continue
            thing = _generator(case.loader)
            yield Finding(
                code=self.code,
                cause=self.cause,
                severity="error",
                message=_message(case.loader, thing, how),
                prescription=_prescription(thing),
                evidence=_evidence(thing, how, trouble.text),
                where=(thing.site if thing else None) or (case.loader.dataset.site if case.loader else None),
                loader=case.loader.key if case.loader else None,
                experiments=(
                    mended("keep-pickled-tensors", "every tensor kept alive while workers start"),
                    under("fork"),
                ),
                remedy=ours(),
                stopped_at_s=case.failure.at_s,
            )
            return


def _generator(loader: LoaderSeen | None) -> Thing | None:
    things = loader.things if loader else ()
    return next((thing for thing in things if thing.kind == "torch-generator"), None)


def _message(loader: LoaderSeen | None, thing: Thing | None, how: str) -> str:
    what = f"the state of `{thing.path}`" if thing else "a tensor made in `__getstate__`"
    return f"{what} is freed before workers of {loader_named(loader)}, started by {how}, have received it"


def _evidence(thing: Thing | None, how: str, text: str) -> tuple[Evidence, ...]:
    found = (
        Evidence("start method", how, "settings"),
        Evidence("what the worker said", short(text), "observed run"),
    )
    if thing is None:
        return found
    return (Evidence("torch.Generator in the dataset", thing.path, "observed run"), *found)


def _prescription(thing: Thing | None) -> Prescription:
    expect = "workers start by spawn and forkserver"
    if thing is None:
        return Prescription(
            "keep the tensor that `__getstate__` makes as an attribute, or ship numpy arrays", expect
        )
    return Prescription(
        f"make `{thing.path}` in `worker_init_fn`, or on first use, instead of keeping it in the dataset",
        expect,
        fix=Fix("lazy-open", thing.site, {"path": thing.path}),
    )
