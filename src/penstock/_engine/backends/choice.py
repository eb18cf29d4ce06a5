"""Where the workers of a loader live, decided in one place, with the reason.

    num_workers=0            the consumer itself, as in torch
    backend="process"        processes from a zygote; its birth follows `multiprocessing_context`
    backend="thread"         threads of the consumer
    backend="inline"         the consumer itself, whatever `num_workers` says
    backend="auto"           measured: inline when a batch costs less than handing it over, else process

Pure, except that it asks the platform and Python what they can do.
"""

from __future__ import annotations

import multiprocessing
import sys
from typing import NamedTuple

from penstock._base.words import Backend, Birth

# What it costs the consumer to hand out a ticket and take a small batch home, with a margin: a batch that
# is made faster than this is made faster still by the consumer itself.
HAND_OVER_S = 150e-6


class Choice(NamedTuple):
    """The decision, and why."""

    backend: Backend
    birth: Birth
    reason: str


def choose(backend: Backend, start_method: str | None, batch_s: float | None, *, is_iterable: bool) -> Choice:
    """Decide. `batch_s` is the measured time to make a batch inline, for "auto"."""
    birth, why = choose_birth(start_method)
    if backend == "auto":
        if is_iterable:
            return Choice("process", birth, f"auto: iterable datasets shard by process; {why}")
        if batch_s is not None and batch_s < HAND_OVER_S:
            return Choice(
                "inline",
                birth,
                f"auto: a batch takes {batch_s * 1e6:.0f} us, less than handing it over",
            )
        return Choice("process", birth, f"auto: batches are worth a worker; {why}")
    return Choice(backend, birth, f"backend={backend!r}; {why}")


def choose_birth(start_method: str | None) -> tuple[Birth, str]:
    """Forked where torch would fork, clean where it would spawn or use a fork server."""
    method: str | None = start_method or multiprocessing.get_start_method(allow_none=True)
    if method is None:
        # What multiprocessing would take; asking it without allow_none would fix it for the program.
        method = multiprocessing.get_all_start_methods()[0]
    if method == "fork":
        return "forked", "start method fork: workers inherit the program's state"
    return "clean", f"start method {method}: the dataset is shipped to a fresh process"


def has_processes() -> bool:
    """Whether this platform can have our process workers."""
    return sys.platform == "linux"
