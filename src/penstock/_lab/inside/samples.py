"""A sample in a few words: form, size, and a digest of its content that is the same in every process.

Reads memory with numpy alone. torch's own operations would start its thread pool in the consumer, and a fork
after that is one of the illnesses that we look for.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Mapping
from typing import Any

from penstock._lab.inside.batches import is_dense, is_tensor, nbytes

WHOLE = 64 << 10  # bytes up to which content is hashed byte by byte; beyond, sums of 8192 columns are
_SEGMENTS, _COLUMNS = 16, 64
_COPIED = 8 << 20  # bytes of a strided array that we copy to read it in order
_MOST = 2_000  # values in one sample that are looked at
_LISTED = 8  # elements that a form shows
_SMALL = 1 << 10  # bytes of a field that gets a digest of its own
_SHORT = {
    "float": "f", "int": "i", "uint": "u", "complex": "c", "bfloat": "bf", "bool": "b",
}  # fmt: skip


class Sample:
    """What was found in one sample."""

    __slots__ = ("_hash", "_left", "_storages", "nbytes", "objects", "storage_nbytes", "tensors")

    def __init__(self, *, has_digest: bool) -> None:
        self._hash = hashlib.blake2b(digest_size=8) if has_digest else None
        self._left = _MOST
        self._storages: set[int] = set()
        self.nbytes = self.storage_nbytes = self.tensors = self.objects = 0

    def digest(self) -> str:
        """Of all content seen."""
        return self._hash.hexdigest() if self._hash is not None else ""

    def form(self, value: Any) -> str:
        """Take a value in; its form."""
        self._left -= 1
        if self._left < 0:
            return "…"
        kind = type(value)
        if value is None or kind in (int, float, bool, complex):
            self.objects += 1
            self._update(f"{kind.__name__}{value!r}".encode())
            return kind.__name__ if value is not None else "None"
        if isinstance(value, (str, bytes, bytearray)):
            return self._text(value, kind)
        if is_tensor(value):
            return self._tensor(value)
        if hasattr(value, "dtype") and hasattr(value, "tobytes"):
            return self._array(value)
        return self._compound(value, kind)

    def _text(self, value: Any, kind: type) -> str:
        self.objects += 1
        self.nbytes += len(value)
        data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
        self._update(data)
        return kind.__name__

    def _tensor(self, value: Any) -> str:
        self.tensors += 1
        self.nbytes += nbytes(value)
        if not is_dense(value):
            return self._odd_tensor(value)
        storage = value.untyped_storage()
        if storage.data_ptr() not in self._storages:
            self._storages.add(storage.data_ptr())
            self.storage_nbytes += storage.nbytes()
        if self._hash is not None:
            self._content(_as_array(value))
        return _form(str(value.dtype).rpartition(".")[2], value.shape)

    def _odd_tensor(self, value: Any) -> str:
        if value.is_sparse and value.device.type == "cpu":
            self.form(value._indices())  # noqa: SLF001 - torch's own; `indices()` asks for a coalesced one
            self.form(value._values())  # noqa: SLF001
        self._update(f"{value.layout}{value.device}{tuple(value.shape)}".encode())
        return f"{value.layout}{list(value.shape)}"

    def _array(self, value: Any) -> str:
        self.nbytes += int(value.nbytes)
        self.storage_nbytes += int(value.nbytes)
        self.objects += 1
        if self._hash is not None:
            if value.dtype == object:
                self._update(repr(value)[:2000].encode("utf-8", "replace"))
            else:
                self._content(sys.modules["numpy"].asarray(value))
        return "np." + _form(str(value.dtype), value.shape)

    def _compound(self, value: Any, kind: type) -> str:
        self.objects += 1
        name = kind.__name__
        if isinstance(value, Mapping):
            return f"{name}({self._mapping(value)})"
        if isinstance(value, (list, tuple)):
            return f"{name}({self._sequence(value)})"
        if isinstance(value, (set, frozenset)):
            self._update(repr(sorted(map(repr, value))).encode("utf-8", "replace"))
            return f"{name}({len(value)})"
        if hasattr(value, "tobytes") and hasattr(value, "mode") and hasattr(value, "size"):  # PIL
            if self._hash is not None:
                self._update(value.tobytes())
            return f"{name}({value.mode} {value.size})"
        return f"{name}({self._mapping(_fields(value))})"

    def _mapping(self, value: Mapping[Any, Any]) -> str:
        shown = []
        for key, part in list(value.items()):
            self._update(repr(key).encode("utf-8", "replace"))
            shown.append(f"{key}={self.form(part)}")
        return _listed(shown)

    def _sequence(self, value: Any) -> str:
        self._update(len(value).to_bytes(8, "little"))
        return _listed([self.form(part) for part in value[: self._left]], len(value))

    def _update(self, data: bytes) -> None:
        if self._hash is not None:
            self._hash.update(len(data).to_bytes(8, "little"))
            self._hash.update(data)

    def _content(self, array: Any) -> None:
        if array is None:
            return
        assert self._hash is not None
        numpy: Any = sys.modules["numpy"]
        self._hash.update(f"{array.dtype}{array.shape}".encode())
        if not array.flags.c_contiguous:
            if array.nbytes > _COPIED:
                array = array[:: array.nbytes // _COPIED + 1]
            array = numpy.ascontiguousarray(array)
        flat = array.reshape(-1).view(numpy.uint8)
        if flat.size <= WHOLE:
            self._hash.update(flat.data)
            return
        size = flat.size - flat.size % (_SEGMENTS * _COLUMNS * 8)
        words = flat[:size].view(numpy.uint64).reshape(_SEGMENTS, -1, _COLUMNS)
        self._hash.update(numpy.ascontiguousarray(words.sum(axis=1, dtype=numpy.uint64)).data)
        self._hash.update(flat[size:].data)


def describe(value: Any, *, has_digest: bool) -> dict[str, Any]:
    """SampleSeen's fields of content."""
    sample = Sample(has_digest=has_digest)
    form = sample.form(value)
    return {
        "digest": sample.digest(),
        "nbytes": sample.nbytes,
        "storage_nbytes": sample.storage_nbytes,
        "tensors": sample.tensors,
        "objects": sample.objects,
        "is_none": value is None,
        "shape": form[:400],
        "parts": _parts(value) if has_digest else [],
    }


def _parts(value: Any) -> list[str]:
    """Digests of the small fields of a sample, so that those that no chance changes can be told apart."""
    fields = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(fields, (list, tuple)) or not 1 < len(fields) <= _LISTED:
        return []
    return [_digest(field) if int(getattr(field, "nbytes", 0)) <= _SMALL else "" for field in fields]


def _digest(value: Any) -> str:
    sample = Sample(has_digest=True)
    sample.form(value)
    return sample.digest()


def _as_array(tensor: Any) -> Any:
    """The same memory as an array, without a copy; None when numpy cannot."""
    if "numpy" not in sys.modules:
        return None
    torch: Any = sys.modules["torch"]
    try:
        tensor = tensor.detach()
        if tensor.dtype == torch.bfloat16:
            tensor = tensor.view(torch.int16)
        return tensor.numpy()
    except (TypeError, RuntimeError):
        return None


def _fields(value: Any) -> Mapping[str, Any]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    found = getattr(value, "__dict__", None)
    return found if type(found) is dict else {}


def _form(dtype: str, shape: Any) -> str:
    letters = dtype.rstrip("0123456789")
    return f"{_SHORT.get(letters, letters)}{dtype[len(letters) :]}[{','.join(map(str, shape))}]"


def _listed(shown: list[str], length: int | None = None) -> str:
    if len(shown) > _LISTED:
        return ",".join(shown[:_LISTED]) + f",… {length or len(shown)}"
    return ",".join(shown)
