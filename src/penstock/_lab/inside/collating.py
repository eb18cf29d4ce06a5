"""Which sample does not fit its batch, and in which field."""

from __future__ import annotations

import re
from typing import Any

_FIELD = re.compile(r"field (.*?) is ")
_POSITION = re.compile(r"position (\d+) in its batch")


def guilty(data: Any, indices: list[Any]) -> tuple[Any, str, str]:
    """Index, field and a sentence, as far as comparison with the first sample tells."""
    from penstock._engine.odd_sample import describe_odd

    note = describe_odd(data, indices)
    found, field = _POSITION.search(note), _FIELD.search(note)
    if found is None:
        return indices if len(indices) > 1 else next(iter(indices), None), "", note
    position = int(found.group(1))
    index = indices[position] if position < len(indices) else position
    return index, field.group(1) if field else "", note
