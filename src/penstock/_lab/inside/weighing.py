"""How many Python objects something holds, and about their bytes: reckoned from some of its parts."""

from __future__ import annotations

import sys
from typing import Any

from penstock._lab.inside.walk import LEAVES, attributes, is_data

_SAMPLED = 100  # elements of a container that are looked at
_WIDTHS = (32, 16, 8, 4, 2)  # parts of a part, of a part of that, …: at most some ten thousand in all


def weigh(value: Any) -> tuple[int, int]:
    """Python objects in a large container, and about their bytes; (0, 0) when it holds blocks of numbers."""
    elements = list(value.values()) if isinstance(value, dict) else value
    step = max(1, len(elements) // _SAMPLED)
    picked = [elements[place] for place in range(0, len(elements), step)][:_SAMPLED]
    if not picked or sum(is_data(each) for each in picked) > len(picked) // 2:
        return 0, 0
    objects = nbytes = 0
    for each in picked:
        more, size = weight(each)
        objects, nbytes = objects + more, nbytes + size
    share = len(elements) / len(picked)
    return int(objects * share), int(nbytes * share) + sys.getsizeof(value)


def weight(value: Any, widths: tuple[int, ...] = _WIDTHS) -> tuple[int, int]:
    """The same of one object, itself included."""
    objects, nbytes = 1, sys.getsizeof(value, 64)
    parts = _parts(value) if widths else []
    if not parts:
        return objects, nbytes
    more = size = 0
    for part in parts[: widths[0]]:
        inner, inner_nbytes = weight(part, widths[1:])
        more, size = more + inner, size + inner_nbytes
    share = max(1.0, len(parts) / widths[0])
    return objects + int(more * share), nbytes + int(size * share)


def _parts(value: Any) -> list[Any]:
    """What a container, or an object of the program's own classes, holds."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple)):
        return list(value)
    if type(value) in LEAVES or is_data(value) or isinstance(value, type):
        return []
    return [part for _, part in attributes(value)]
