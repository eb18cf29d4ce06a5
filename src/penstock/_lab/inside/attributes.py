"""Attributes of the dataset that have changed since its persistent workers were started."""

from __future__ import annotations

from typing import Any

_SIMPLE = (int, float, bool, str, type(None))
_MOST = 200  # attributes that are looked at
_SEEN = "_penstock_attributes"


def changed(loader: Any) -> dict[str, str]:
    """What persistent workers do not know; empty at the first pass, which remembers how it was."""
    now = _simple(loader.dataset)
    before = loader.__dict__.get(_SEEN)
    if before is None or getattr(loader, "_iterator", None) is None:
        loader.__dict__[_SEEN] = now
        return {}
    return {
        path: f"{before[path]!r} → {now[path]!r}"[:200]
        for path in now
        if path in before and before[path] != now[path]
    }


def _simple(dataset: Any) -> dict[str, Any]:
    from penstock._lab.inside.walk import walk

    found: dict[str, Any] = {}
    for path, value, _ in walk(dataset, "dataset", most=2_000, deepest=4):
        if isinstance(value, _SIMPLE) and len(found) < _MOST:
            found[path] = value
    return found
