"""Large lists of a dataset as a few flat buffers.

Every element of a Python list is an object with a reference count. Reading it in a forked worker writes to
its page, and the kernel copies the page: after an epoch every worker owns a copy of the list. Packed into
buffers the elements are made anew at each access, nothing that is shared is ever written to.

    ["a.jpg", "b.jpg", …]        ──▶  PackedList(offsets, bytes)
    [("a.jpg", 3), …]            ──▶  each element pickled, the same two buffers

Packing happens in the consumer, once per list; workers see the packed form in place of the list, and the
consumer's own dataset is left alone.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any, overload

import numpy as np

# Shorter lists are not worth it: their pages are copied in no time.
LARGE = 50_000  # elements
_CHUNK = 10_000  # elements packed at a time
_COMPARED = 200  # elements that are looked at to see whether a list was changed in place
_DEEPEST = 6  # levels of attributes that are searched
_WIDEST = 1_000  # elements of a small container that are searched


class PackedList(Sequence[Any]):
    """A list that cannot be changed, in flat buffers. Elements are equal to the originals, not identical."""

    __slots__ = ("_bytes", "_offsets", "_unpack")

    def __init__(self, offsets: Any, data: Any, unpack: Callable[[Any], Any]) -> None:
        self._offsets = memoryview(offsets).cast("B").cast("q")
        self._bytes = memoryview(data).cast("B")
        self._unpack = unpack

    @classmethod
    def pack(cls, elements: Sequence[Any]) -> PackedList:
        """Pack a list or tuple."""
        pack, unpack = _form(elements)
        offsets = np.zeros(len(elements) + 1, np.int64)
        data = bytearray()
        for start in range(0, len(elements), _CHUNK):  # the blobs of one chunk exist at a time
            blobs = [pack(element) for element in elements[start : start + _CHUNK]]
            offsets[start + 1 : start + 1 + len(blobs)] = [len(blob) for blob in blobs]
            data += b"".join(blobs)
        np.cumsum(offsets, out=offsets)
        return cls(offsets, np.array(data, np.uint8), unpack)  # an array of its own: it can be shared

    @property
    def nbytes(self) -> int:
        """Bytes of both buffers."""
        return int(self._offsets.nbytes + self._bytes.nbytes)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """An element, or a plain list of them."""
        if isinstance(index, slice):
            return [self._at(place) for place in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError("list index out of range")
        return self._at(place)

    def __iter__(self) -> Iterator[Any]:
        return (self._at(place) for place in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (list, PackedList)) or len(other) != len(self):
            return NotImplemented
        return all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return f"<PackedList of {len(self)} elements, {self.nbytes / 2**20:.1f} MiB>"

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # Out of band where pickle can; copies and old protocols get bytes.
        form: Any = pickle.PickleBuffer if protocol >= 5 else bytes  # noqa: PLR2004
        return PackedList, (form(self._offsets), form(self._bytes), self._unpack)

    def _at(self, place: int) -> Any:
        return self._unpack(self._bytes[self._offsets[place] : self._offsets[place + 1]])


def _form(elements: Sequence[Any]) -> tuple[Callable[[Any], bytes], Callable[[Any], Any]]:
    kinds = set(map(type, elements))
    if kinds == {str}:
        return _encode, _decode
    if kinds == {bytes}:
        return bytes, bytes
    return _dumps, pickle.loads


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # file names may hold what UTF-8 does not


def _decode(data: memoryview) -> str:
    return str(data, "utf-8", "surrogatepass")


def _dumps(element: Any) -> bytes:
    return pickle.dumps(element, 5)


def pack_large(root: Any, known: dict[int, tuple[Any, PackedList]]) -> dict[int, tuple[Any, PackedList]]:
    """Pack every large list under `root`; by identity, each with its list. `known` ones are kept."""
    packed = {}
    for _, _, value in _large_lists(root):
        before = known.get(id(value))
        is_same = before is not None and before[0] is value and _looks_same(before[1], value)
        packed[id(value)] = before if is_same and before else (value, PackedList.pack(value))
    return packed


def _looks_same(packed: PackedList, elements: list[Any]) -> bool:
    """Whether a list is still the one that was packed, judged by its length and some of its elements."""
    if len(packed) != len(elements):
        return False
    step = max(1, len(elements) // _COMPARED)
    return all(packed[place] == elements[place] for place in range(0, len(elements), step))


def swap_large(root: Any, packed: dict[int, tuple[Any, PackedList]]) -> None:
    """Put the packed lists in the place of the originals. In a worker's own copy of the dataset."""
    for container, key, value in list(_large_lists(root)):
        found = packed.get(id(value))
        if found is not None:
            container[key] = found[1]


def _large_lists(root: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Every (container, key, list) under `root` in which a list can be replaced."""
    seen: set[int] = set()
    level: list[Any] = [root]
    for _ in range(_DEEPEST):
        deeper: list[Any] = []
        for value in level:
            if id(value) in seen:
                continue
            seen.add(id(value))
            for container, key, part in _parts(value):
                if type(part) is list and len(part) >= LARGE:
                    yield container, key, part
                elif hasattr(part, "__dict__") or isinstance(part, (dict, list, tuple)):
                    deeper.append(part)
        level = deeper


def _parts(value: Any) -> Iterable[tuple[Any, Any, Any]]:
    if isinstance(value, dict):
        return [(value, key, part) for key, part in islice(value.items(), _WIDEST)]
    if isinstance(value, list):
        return [(value, place, part) for place, part in enumerate(value[:_WIDEST])]
    if isinstance(value, tuple):
        # A tuple cannot be changed, but what it holds can be.
        parts = value[:_WIDEST]
        return [(None, None, part) for part in parts if type(part) is not list or len(part) < LARGE]
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict) or isinstance(value, (type, FunctionType, ModuleType)):
        return []
    return [(attributes, name, part) for name, part in list(attributes.items())]
