"""An iterable dataset that is not divided among its workers: every worker yields the same samples.

The evidence is the content of the first samples of an epoch, by digest. What decides is `is_repeated`, which
is pure; `digest` reads samples, in the worker.

Stays silent when that proves nothing: one worker, streams of one sample, streams that repeat one sample,
samples that cannot be read. Streams that every worker shuffles in its own way are not recognised.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import struct
from collections.abc import Collection, Sequence
from typing import Any

# An epoch is watched until so many different samples with so many bytes have been seen, but no longer than
# MOST samples: a stream of labels needs more of them to prove anything than a stream of pictures.
ENOUGH = 4
ENOUGH_BYTES = 256
MOST = 16

_READ = 1 << 15  # bytes read at either end of an array
_DEEPEST = 8


def is_repeated(prefixes: Collection[tuple[bytes, ...]]) -> bool:
    """Whether these workers, by the digests of their first samples, have the same stream."""
    if len(prefixes) < 2 or len(set(prefixes)) > 1:  # noqa: PLR2004 - two of anything
        return False
    return len(set(next(iter(prefixes)))) > 1


def is_enough(prefix: Sequence[bytes], nbytes: int) -> bool:
    """Whether more samples would prove no more."""
    return len(prefix) >= MOST or (nbytes >= ENOUGH_BYTES and len(set(prefix)) >= ENOUGH)


def warning(samples: int, workers: int) -> str:
    """What is said when nothing is changed."""
    return (
        f"[PS301] every worker yields the same samples: the first {samples} of all {workers} workers are "
        f"equal, so an epoch brings each sample {workers} times. Let `__iter__` yield this worker's share, "
        "as `torch.utils.data.get_worker_info()` tells, or pass cure=True."
    )


def cured(samples: int, workers: int) -> str:
    """What is said when the stream was divided."""
    return (
        f"[PS301] every worker makes the same samples: the first {samples} of all {workers} workers are "
        f"equal. cure=True: worker k yields the samples k, k + {workers}, k + {2 * workers} … of its stream, "
        "so that each comes once. To save the making of the others, let `__iter__` yield this worker's share."
    )


# ---- in the worker ------------------------------------------------------------------------------


def digest(sample: Any) -> tuple[bytes, int]:
    """What a sample holds, in 16 bytes, and how much was read; one that cannot be read equals no other."""
    reader = _Reader()
    try:
        reader.read(sample, 0)
    except Exception:  # noqa: BLE001 - samples are the user's objects
        return os.urandom(16), 0
    return reader.hash.digest(), reader.nbytes


class _Reader:
    """Walks one sample."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)
        self.nbytes = 0

    def read(self, value: Any, depth: int) -> None:
        kind = type(value)
        self._add(f"{kind.__module__}.{kind.__qualname__}".encode(), counts=False)
        if depth > _DEEPEST:
            raise ValueError("too deep")
        if kind is dict:
            value = [part for item in value.items() for part in item]
        if isinstance(value, (list, tuple)):
            self._add(b"%d" % len(value), counts=False)
            for part in value[:_READ]:
                self.read(part, depth + 1)
                if self.nbytes > 2 * _READ:
                    return
        else:
            self._read_leaf(value, kind)

    def _read_leaf(self, value: Any, kind: type) -> None:
        if kind is str:
            self._ends(value.encode("utf-8", "surrogatepass"))
        elif kind in (bytes, bytearray, memoryview):
            self._ends(value)
        elif kind in (bool, int, type(None)):
            self._add(repr(value).encode())
        elif kind is float:
            self._add(struct.pack("<d", value))
        elif hasattr(value, "dtype") and hasattr(value, "shape"):
            self._read_array(value)
        else:
            self._ends(pickle.dumps(value, 5))

    def _read_array(self, value: Any) -> None:
        import numpy as np
        import torch

        if isinstance(value, torch.Tensor):
            self._add(f"{value.dtype} {tuple(value.shape)}".encode(), counts=False)
            value = value.detach().contiguous().view(-1).view(torch.uint8).numpy()
        array = np.ascontiguousarray(value)
        if array.dtype.hasobject:
            self._ends(pickle.dumps(value, 5))
            return
        self._add(f"{array.dtype} {array.shape}".encode(), counts=False)
        self._ends(array.reshape(-1).view(np.uint8))

    def _ends(self, data: Any) -> None:
        """Read both ends of what may be long."""
        view = memoryview(data).cast("B")
        self._add(b"%d" % view.nbytes, counts=False)
        self._add(view[:_READ])
        if view.nbytes > _READ:
            self._add(view[max(_READ, view.nbytes - _READ) :])

    def _add(self, data: Any, *, counts: bool = True) -> None:
        self.hash.update(data)
        self.hash.update(b"\0")
        self.nbytes += len(data) if counts else 0
