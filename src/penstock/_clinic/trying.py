"""Experiments that several rules name: each changes exactly one thing. Pure."""

from __future__ import annotations

from penstock._clinic.finding import Experiment
from penstock._lab.plan import Change
from penstock._lab.record import LoaderSeen


def under(method: str) -> Experiment:
    """The same loader with workers that start in another way."""
    return Experiment(f"the same loader under {method}", Change(settings={"multiprocessing_context": method}))


def with_workers(number: int) -> Experiment:
    """The same loader with another number of workers."""
    return Experiment(f"the same loader with num_workers={number}", Change(settings={"num_workers": number}))


def mended(mend: str, title: str, *, brings: str = "") -> Experiment:
    """The same loader with one thing repaired from inside."""
    return Experiment(title, Change(mends=(mend,)), brings=brings)


def ours() -> Experiment:
    """Our loader in torch's place."""
    return Experiment("penstock's loader in its place", Change(use_penstock=True))


def can_ship(loader: LoaderSeen | None) -> bool:
    """Whether workers can be started by spawn: nothing that they get refuses to be pickled."""
    return loader is not None and all(thing.pickles is not False for thing in loader.things)
