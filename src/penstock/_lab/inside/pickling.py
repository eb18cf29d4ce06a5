"""Try whether something can be sent to another process, without sending it.

Tensors, arrays and what only multiprocessing itself can send are left out: pickling a tensor would move it to
shared memory.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from typing import Any


class _Dry(pickle.Pickler):
    """Writes everything but blocks of numbers."""

    def reducer_override(self, value: Any) -> Any:
        """Stand-ins for what is left out."""
        kind = type(value)
        torch: Any = sys.modules.get("torch")
        if torch is not None and isinstance(value, (torch.Tensor, torch.UntypedStorage)):
            return bytes, ()
        if kind.__module__ == "numpy" and hasattr(value, "dtype") and value.dtype != object:
            return bytes, ()
        if kind.__module__.startswith("multiprocessing."):
            return bytes, ()
        return NotImplemented


def dumps(value: Any) -> bytes:
    """Pickle, as multiprocessing would, without the numbers."""
    from multiprocessing.reduction import ForkingPickler

    stream = io.BytesIO()
    pickler = _Dry(stream, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {**copyreg.dispatch_table, **ForkingPickler._extra_reducers}  # type: ignore[attr-defined]  # noqa: SLF001
    pickler.dump(value)
    return stream.getvalue()
