"""Try whether something can be sent to another process, without sending it.

Tensors, arrays and what only multiprocessing itself can send are left out: pickling a tensor would move it to
shared memory. Their bytes are counted.
"""

from __future__ import annotations

import copyreg
import pickle
import sys
import time
from typing import Any

from penstock._lab.inside.batches import nbytes

MOST_BYTES = 256 << 20
MOST_S = 2.0


class TooLongError(Exception):
    """It was given up: too many bytes, or too much time."""


class _Sink:
    """A file that only counts."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._until = time.monotonic() + MOST_S

    def write(self, data: Any) -> int:
        size = len(data)
        self.nbytes += size
        if self.nbytes > MOST_BYTES or time.monotonic() > self._until:
            raise TooLongError
        return size


class _Dry(pickle.Pickler):
    """Writes everything but blocks of numbers."""

    numbers = 0  # bytes of what was left out

    def reducer_override(self, value: Any) -> Any:
        """Stand-ins for what is left out."""
        kind = type(value)
        torch: Any = sys.modules.get("torch")
        if torch is not None and isinstance(value, (torch.Tensor, torch.UntypedStorage)):
            self.numbers += nbytes(value) if isinstance(value, torch.Tensor) else int(value.nbytes())
            return bytes, ()
        if kind.__module__ == "numpy" and hasattr(value, "dtype") and value.dtype != object:
            self.numbers += int(value.nbytes)
            return bytes, ()
        if kind.__module__.startswith("multiprocessing.") and not isinstance(value, type):
            return bytes, ()
        return NotImplemented


def dumps(value: Any) -> int:
    """Pickle, as multiprocessing would; the number of bytes, those of tensors and arrays included."""
    from multiprocessing.reduction import ForkingPickler

    sink = _Sink()
    pickler = _Dry(sink, pickle.HIGHEST_PROTOCOL)
    extra = getattr(ForkingPickler, "_extra_reducers", {})
    own = {kind: reduce for kind, reduce in extra.items() if not _is_torch(kind)}
    pickler.dispatch_table = {**copyreg.dispatch_table, **own}
    pickler.dump(value)
    return sink.nbytes + pickler.numbers


def _is_torch(kind: Any) -> bool:
    return getattr(kind, "__module__", "").startswith("torch")


def refusal(value: Any) -> str | None:
    """What pickle says against an object; "" when it takes it, None when that took too long to tell."""
    try:
        dumps(value)
    except TooLongError:
        return None
    except Exception as error:  # noqa: BLE001 - whatever pickling user objects raises
        return f"{type(error).__name__}: {error}"[:500]
    return ""
