"""Loaders that one line makes again and again, all alike, are one: those of each fold, of each epoch. Pure.

A factory makes different loaders on one line too. They are told apart by when they are used: a loader that
was made in place of another is used only after that one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from penstock._lab.record import IteratorSeen, LoaderSeen, Trial

# Different loaders of one line, all alike, that are told apart; any more are taken for the first.
MOST = 4


def firsts(trial: Trial, loaders: Sequence[LoaderSeen]) -> dict[str, str]:
    """By the key of each loader, the key of the first of those that it was made in place of; or its own."""
    used = {loader.key: _used(trial, loader.key) for loader in loaders}
    lines: dict[tuple[Any, ...], dict[str, float]] = {}  # by first key: until when one of them was in use
    meant: dict[str, str] = {}
    for loader in loaders:
        began_s, ended_s = used[loader.key]
        line = loader.key.rpartition("#")[0]
        kind = (line, loader.pid, loader.dataset.type, loader.length, loader.settings.get("num_workers"))
        until = lines.setdefault(kind, {})
        first = next((key for key, last_s in until.items() if last_s <= began_s), None)
        if first is None:
            first = loader.key if len(until) < MOST else next(iter(until))
        until[first] = max(ended_s, until.get(first, 0.0))
        meant[loader.key] = first
    return meant


def _used(trial: Trial, key: str) -> tuple[float, float]:
    """From when until when a loader was in use; one that never was is after all others."""
    passes = trial.of(key)
    if not passes:
        return trial.seconds, trial.seconds
    return min(seen.began_s for seen in passes), max(_ended_s(seen, trial) for seen in passes)


def _ended_s(seen: IteratorSeen, trial: Trial) -> float:
    """When a pass was last asked for anything: an iterator may be forgotten, and stay open."""
    if seen.ended_s is not None or seen.waiting_since_s is not None:
        return trial.seconds if seen.ended_s is None else seen.ended_s
    return min(trial.seconds, seen.began_s + seen.start_s + sum(seen.waits) + sum(seen.steps))


def by_line(trial: Trial) -> Trial:
    """The same trial, where loaders that are made again and again count as one: the first.

    For speed alone: the data of two datasets must not be mixed.
    """
    meant = firsts(trial, trial.loaders)
    if all(key == other for key, other in meant.items()):
        return trial
    return dataclasses.replace(
        trial,
        loaders=tuple(each for each in trial.loaders if meant[each.key] == each.key),
        iterators=tuple(_meant(each, meant) for each in trial.iterators),
        fetches=tuple(_meant(each, meant) for each in trial.fetches),
    )


def _meant(each: Any, meant: Mapping[str, str]) -> Any:
    return dataclasses.replace(each, loader=meant.get(each.loader, each.loader))
