"""Every option, checked once, before anything is started.

Where torch has a check, ours raises the same type with torch's sentence first, then says what was passed
and the nearest value that would be taken. Torch's own checks run after ours, unchanged.
"""

from __future__ import annotations

import math
import numbers
import operator
import os
import re
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from penstock._base.words import Action, Backend, OnIterableCrash
from penstock.errors import SettingsError, SettingsTypeError

BACKENDS: tuple[str, ...] = get_args(Backend)
SEEDS = 1 << 64
ACTIONS: tuple[str, ...] = get_args(Action)
ON_ITERABLE_CRASH: tuple[str, ...] = get_args(OnIterableCrash)


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


def check_mistakes(cure: Any, on_iterable_crash: Any) -> None:
    """Refuse values of the options about mistakes in datasets and streams that were lost."""
    if not isinstance(cure, bool):
        raise _wrong_type("cure", cure, "True or False", "cure=False")
    if on_iterable_crash not in ON_ITERABLE_CRASH:
        nearest = _nearest(on_iterable_crash, ON_ITERABLE_CRASH)
        raise _out_of_range(
            f"on_iterable_crash option should be one of {', '.join(map(repr, ON_ITERABLE_CRASH))}",
            f"on_iterable_crash={on_iterable_crash!r}", f"on_iterable_crash={nearest!r}",
        )  # fmt: skip


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


def check_restarts(max_restarts: Any, max_worker_memory: Any) -> None:
    """Refuse numbers of restarts and of bytes that are none."""
    if max_worker_memory is not None:
        _check_at_least("max_worker_memory", max_worker_memory, 1)
    _check_integer("max_restarts", max_restarts)
    if max_restarts < 0:
        raise _out_of_range(
            "max_restarts option should be zero or more",
            f"max_restarts={max_restarts!r}", "max_restarts=0 (a dead worker is an error, as in torch)",
        )  # fmt: skip


def check_seed(seed: Any, backend: Any) -> None:
    """Refuse a seed that is none, and one that could not be kept."""
    if seed is None:
        return
    _check_integer("seed", seed)
    seed = operator.index(seed)  # a tensor of one element cannot be compared with what it cannot hold
    if not 0 <= seed < SEEDS:
        raise _out_of_range(
            "seed option should be None or a whole number from 0 to 2**64 - 1",
            f"seed={seed!r}", f"seed={0 if seed < 0 else SEEDS - 1}",
        )  # fmt: skip
    if backend == "thread":
        raise _excluded(
            "seed option cannot be kept by worker threads, which share the generators of random numbers "
            "with each other and with the training loop",
            f"seed={seed!r} and backend='thread'",
            "leave backend out for worker processes, or leave seed out",
        )


def check_epoch(epoch: Any) -> None:
    """Refuse an epoch that is none."""
    _check_integer("epoch", epoch)
    if epoch < 0:
        raise _out_of_range("epoch should be non-negative", f"epoch={epoch!r}", "epoch=0")


def check_on_error(on_error: Any) -> None:
    """Refuse what is neither an action nor (the caller has looked) a policy."""
    if not isinstance(on_error, str):
        allowed = f"one of {', '.join(map(repr, ACTIONS))} or a penstock.ErrorPolicy"
        raise _wrong_type("on_error", on_error, allowed, 'on_error="raise"')
    _check_action("on_error", on_error, ACTIONS)


def check_quarantine(quarantine: Any) -> None:
    """Refuse what is no path."""
    if quarantine is not None and not isinstance(quarantine, (str, os.PathLike)):
        raise _wrong_type("quarantine", quarantine, "the path of a file or None", "quarantine=None")


def check_policy(given: dict[str, Any]) -> None:
    """Refuse values of an ErrorPolicy, given by the names of its fields."""
    _check_action("ErrorPolicy.default", given["default"], ACTIONS)
    _check_action("ErrorPolicy.then", given["then"], [action for action in ACTIONS if action != "retry"])
    by_type, example = given["by_type"], 'a dict such as {OSError: "retry"}'
    if not isinstance(by_type, Mapping):
        raise _wrong_type("ErrorPolicy.by_type", by_type, "a mapping of exception types to actions", example)
    for kind, action in by_type.items():
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise _wrong_type("ErrorPolicy.by_type key", kind, "a type of exceptions", example)
        _check_action(f"ErrorPolicy.by_type[{kind.__name__}]", action, ACTIONS)
    for name, least in (("retries", 1), ("most", 0), ("probation", 0)):
        if not (name == "most" and given[name] is None):
            _check_at_least(f"ErrorPolicy.{name}", given[name], least)
    _check_between("ErrorPolicy.backoff", given["backoff"], math.inf)
    if given["most_rate"] is not None:
        _check_between("ErrorPolicy.most_rate", given["most_rate"], 1)


def _check_action(name: str, value: Any, allowed: Iterable[str]) -> None:
    allowed = list(allowed)
    if value not in allowed:
        raise _out_of_range(
            f"{name} option should be one of {', '.join(map(repr, allowed))}",
            f"{name}={value!r}", f"{name}={_nearest(value, allowed)!r}",
        )  # fmt: skip


def _check_at_least(name: str, value: Any, least: int) -> None:
    _check_integer(name, value)
    if value < least:
        raise _out_of_range(
            f"{name} option should be at least {least}", f"{name}={value!r}", f"{name}={least}"
        )


def _check_between(name: str, value: Any, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _wrong_type(name, value, "a number", f"{name}=0.1")
    number = float(value)
    if not 0 <= number <= most:  # NaN neither
        allowed = "0 or more" if most == math.inf else f"from 0 to {most}"
        nearest = most if number > most else 0
        raise _out_of_range(f"{name} option should be {allowed}", f"{name}={value!r}", f"{name}={nearest}")


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
