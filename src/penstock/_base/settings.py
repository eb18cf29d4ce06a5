"""Every option, checked once, before anything is started.

Where torch has a check, ours raises the same type with torch's sentence first, then says what was passed
and the nearest value that would be taken. Torch's own checks run after ours, unchanged.
"""

from __future__ import annotations

import math
import numbers
import re
import reprlib
from collections.abc import Iterable
from typing import Any, get_args

from penstock._base.words import Backend
from penstock.errors import SettingsError, SettingsTypeError

BACKENDS: tuple[str, ...] = get_args(Backend)


def check_counts(num_workers: Any, prefetch_factor: Any, batch_size: Any) -> None:
    """Refuse counts that are no counts."""
    _check_integer("num_workers", num_workers)
    if num_workers < 0:
        raise _out_of_range(
            "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing",
            f"num_workers={num_workers!r}", "num_workers=0",
        )  # fmt: skip
    if batch_size is not None:
        _check_integer("batch_size", batch_size)
        if batch_size <= 0:
            raise _out_of_range(
                "batch_size should be a positive integer value, "
                f"but got batch_size={batch_size!r}", f"batch_size={batch_size!r}", "batch_size=1",
            )  # fmt: skip
    if prefetch_factor is None:
        return
    _check_integer("prefetch_factor", prefetch_factor)
    if num_workers == 0:
        raise _excluded(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None.",
            f"num_workers=0 and prefetch_factor={prefetch_factor!r}",
            "leave prefetch_factor out, or set num_workers=1",
        )
    if prefetch_factor < 1:
        raise _out_of_range(
            "prefetch_factor option should be non-negative, and a worker needs at least one batch "
            "to work on", f"prefetch_factor={prefetch_factor!r}", "prefetch_factor=1",
        )  # fmt: skip


def check_times(timeout: Any) -> None:
    """Refuse a timeout that is no time."""
    if isinstance(timeout, bool) or not isinstance(timeout, numbers.Real):
        raise _wrong_type("timeout", timeout, "a number of seconds", "timeout=0, which waits without limit")
    if timeout < 0 or math.isnan(timeout):
        raise _out_of_range(
            "timeout option should be non-negative", f"timeout={timeout!r}", "timeout=0 (no limit)"
        )


def check_workers_needed(num_workers: int, persistent_workers: Any, context: Any) -> None:
    """Refuse worker options without workers."""
    if num_workers:
        return
    if persistent_workers:
        raise _excluded(
            "persistent_workers option needs num_workers > 0",
            "num_workers=0 and persistent_workers=True",
            "leave persistent_workers out, or set num_workers=1",
        )
    if context is not None:
        raise _excluded(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0), "
            "but got num_workers=0",
            f"num_workers=0 and multiprocessing_context={context!r}",
            "leave multiprocessing_context out, or set num_workers=1",
        )


def check_order(dataset_is_iterable: bool, given: dict[str, Any]) -> None:  # noqa: FBT001
    """Refuse options that contradict each other, or the kind of dataset, about what comes when."""
    if dataset_is_iterable:
        for name in ("sampler", "batch_sampler", "shuffle"):
            value = given[name]
            if value is not None and not (name == "shuffle" and not value):
                raise SettingsError(
                    "PS004",
                    f"DataLoader with IterableDataset: expected unspecified {name} option, "
                    f"but got {name}={value}",
                    why="an iterable dataset yields its samples in its own order",
                    fix=f"leave {name} out and order the samples in the dataset, or use a map-style dataset",
                )
    if given["sampler"] is not None and given["shuffle"]:
        raise _excluded(
            "sampler option is mutually exclusive with shuffle",
            f"sampler={reprlib.repr(given['sampler'])} and shuffle={given['shuffle']!r}",
            "leave shuffle out: the sampler decides the order",
        )
    if given["batch_sampler"] is not None:
        _check_batch_sampler(given)
    elif given["batch_size"] is None and given["drop_last"]:
        raise _excluded(
            "batch_size=None option disables auto-batching and is mutually exclusive with drop_last",
            "batch_size=None and drop_last=True",
            "leave drop_last out, or set batch_size",
        )


def _check_batch_sampler(given: dict[str, Any]) -> None:
    is_given = {
        "batch_size": given["batch_size"] != 1,
        "shuffle": bool(given["shuffle"]),
        "sampler": given["sampler"] is not None,
        "drop_last": bool(given["drop_last"]),
    }
    extra = [f"{name}={reprlib.repr(given[name])}" for name, is_there in is_given.items() if is_there]
    if extra:
        raise _excluded(
            "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last",
            f"batch_sampler and {', '.join(extra)}",
            "leave those out: the batch sampler decides the batches",
        )


def check_context(context: Any) -> None:
    """Refuse a start method that does not exist here."""
    import multiprocessing

    methods = multiprocessing.get_all_start_methods()
    if isinstance(context, str) and context not in methods:
        raise _out_of_range(
            f"multiprocessing_context option should specify a valid start method in {methods!r}, but got "
            f"multiprocessing_context={context!r}",
            f"multiprocessing_context={context!r}", f"multiprocessing_context={_nearest(context, methods)!r}",
        )  # fmt: skip
    if context is not None and not isinstance(context, (str, multiprocessing.context.BaseContext)):
        raise SettingsTypeError(
            "PS001",
            "multiprocessing_context option should be a valid context object or a string specifying the "
            f"start method, but got multiprocessing_context={context}",
            why=f"it is of type {type(context).__name__}",
            fix=f"pass one of {', '.join(map(repr, methods))}",
        )


def check_own(backend: Any, arena_bytes: Any, pack_lists: Any) -> None:
    """Refuse values of the options that torch does not have."""
    if backend not in BACKENDS:
        nearest = _nearest(backend, BACKENDS)
        raise _out_of_range(
            f"backend option should be one of {', '.join(map(repr, BACKENDS))}",
            f"backend={backend!r}", f"backend={nearest!r}",
        )  # fmt: skip
    if arena_bytes is not None:
        _check_integer("arena_bytes", arena_bytes)
        if arena_bytes <= 0:
            raise _out_of_range(
                "arena_bytes option should be a positive number of bytes",
                f"arena_bytes={arena_bytes!r}", "arena_bytes=None (a share of the free memory)",
            )  # fmt: skip
    if not isinstance(pack_lists, bool):
        raise _wrong_type("pack_lists", pack_lists, "True or False", "pack_lists=False")


def check_stalls(stall_warn: Any, stall_timeout: Any) -> None:
    """Refuse limits for workers without progress that are no times."""
    if not (isinstance(stall_warn, str) and stall_warn == "auto"):
        _check_limit(
            "stall_warn", stall_warn, 'a number of seconds above 0, "auto" or None', 'stall_warn="auto"'
        )
    _check_limit("stall_timeout", stall_timeout, "a number of seconds above 0 or None", "stall_timeout=30.0")


def _check_limit(name: str, value: Any, allowed: str, usual: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong_type(name, value, allowed, usual)
    if not value > 0:
        raise _out_of_range(
            f"{name} option should be {allowed}", f"{name}={value!r}", f"{name}=None (no limit)"
        )


def _check_integer(name: str, value: Any) -> None:
    # numpy's integers and one-element tensors are taken, as torch takes them; True is a slip.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        is_number = re.fullmatch("-?[0-9]+", str(value)) is not None
        hint = f"{name}={int(value)}" if is_number else f"an int for {name}"
        raise _wrong_type(name, value, "a whole number", hint)


def _nearest(value: Any, allowed: Iterable[str]) -> str:
    import difflib

    allowed = list(allowed)
    close = difflib.get_close_matches(str(value), allowed, n=1, cutoff=0.3)
    return close[0] if close else allowed[0]


def _wrong_type(name: str, value: Any, allowed: str, nearest: str) -> SettingsTypeError:
    return SettingsTypeError(
        "PS001",
        f"{name} option should be {allowed}",
        why=f"got {name}={value!r}, of type {type(value).__name__}",
        fix=f"pass {nearest}",
    )


def _out_of_range(what: str, got: str, nearest: str) -> SettingsError:
    return SettingsError("PS002", what, why=f"got {got}", fix=f"the nearest allowed value is {nearest}")


def _excluded(what: str, got: str, fix: str) -> SettingsError:
    return SettingsError("PS003", what, why=f"got {got}", fix=fix)
