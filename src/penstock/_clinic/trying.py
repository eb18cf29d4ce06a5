"""Experiments that several rules name: each changes exactly one thing. Pure."""

from __future__ import annotations

from typing import Any

from penstock._clinic.finding import Experiment
from penstock._clinic.naming import sample_named
from penstock._lab.plan import Change
from penstock._lab.record import LoaderSeen, Thing


def under(method: str) -> Experiment:
    """The same loader with workers that start in another way."""
    return Experiment(f"the same loader under {method}", Change(settings={"multiprocessing_context": method}))


def with_workers(number: int) -> Experiment:
    """The same loader with another number of workers."""
    return Experiment(f"the same loader with num_workers={number}", Change(settings={"num_workers": number}))


def mended(mend: str, title: str, *, brings: str = "") -> Experiment:
    """The same loader with one thing repaired from inside."""
    return Experiment(title, Change(mends=(mend,)), brings=brings)


def without(index: Any) -> tuple[Experiment, ...]:
    """The same loader without the sample in hand, or the batch that was; none where nobody knows."""
    indices = index if isinstance(index, (list, tuple)) else [index]
    if not indices or not all(isinstance(each, int) for each in indices):
        return ()
    what = sample_named(index).removeprefix("a sample of ")
    return (mended(f"skip-index:{','.join(str(each) for each in indices)}", f"the loader without {what}"),)


def ours() -> Experiment:
    """Our loader in torch's place."""
    return Experiment("penstock's loader in its place", Change(use_penstock=True))


# What pickle refuses, wherever it stands; globals of a module are not shipped.
_UNSHIPPABLE = frozenset(
    {
        "lambda", "local-function", "local-class", "lock", "thread", "generator", "open-file", "archive",
        "mapping", "database", "hdf5", "lmdb", "module", "thread-local",
    }
)  # fmt: skip
_SHIPPED = ("dataset", "collate_fn", "worker_init_fn", "sampler", "batch_sampler")


def can_ship(loader: LoaderSeen | None) -> bool:
    """Whether workers can be started by spawn: nothing that they get refuses to be pickled."""
    return loader is not None and not any(_refuses(thing) for thing in loader.things)


def _refuses(thing: Thing) -> bool:
    is_shipped = thing.path.split(".")[0].split("[")[0] in _SHIPPED
    return thing.pickles is False or (thing.pickles is None and is_shipped and thing.kind in _UNSHIPPABLE)
