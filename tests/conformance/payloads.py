"""One of everything that users put into a batch. Each maker runs in the worker."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import tempfile
import types
import typing
import uuid

import numpy as np
import PIL.Image
import torch


class Point(typing.NamedTuple):
    """A namedtuple."""

    x: typing.Any
    y: typing.Any


@dataclasses.dataclass
class Record:
    """A dataclass, as graph libraries use for their batches."""

    image: torch.Tensor
    label: int
    meta: dict


class Colour(enum.Enum):
    """An enum member is the same object after the journey."""

    RED = 1


class Boxes(torch.Tensor):
    """A tensor subclass with a method of its own."""

    def area(self):
        return (self[..., 2] - self[..., 0]) * (self[..., 3] - self[..., 1])


class Tagged(dict):
    """A dict subclass with an attribute."""

    def __init__(self, *args, tag=None):
        super().__init__(*args)
        self.tag = tag

    def __reduce__(self):
        return _tagged, (dict(self), self.tag)


def _tagged(content, tag):
    return Tagged(content, tag=tag)


class OwnList(list):
    """A list subclass."""


class OwnBatch:
    """A class of the user's own, with a `pin_memory` method, as the manual tells."""

    def __init__(self):
        self.rows = torch.arange(6.0).reshape(2, 3)
        self.names = ["a", "b"]
        self.pinned = 0

    def pin_memory(self):
        self.pinned += 1
        return self

    def __eq__(self, other):
        return torch.equal(self.rows, other.rows) and self.names == other.names

    __hash__ = None


class WithSlots:
    """An object without a `__dict__`."""

    __slots__ = ("value",)

    def __init__(self):
        self.value = torch.arange(3)

    def __eq__(self, other):
        return torch.equal(self.value, other.value)

    __hash__ = None


class Labelled(torch.Tensor):
    """A tensor subclass with an attribute, as torchvision's boxes have."""


def _labelled():
    tensor = torch.arange(3.0).as_subclass(Labelled)
    tensor.label = "kept"
    return tensor


def _memmap(size=6):
    with tempfile.TemporaryFile() as file:
        array = np.memmap(file, dtype=np.int16, mode="w+", shape=(size,))
    array[:] = np.arange(size)
    return array


def _packed_sequence():
    rows = [torch.arange(3.0), torch.arange(2.0)]
    return torch.nn.utils.rnn.pack_sequence(rows)


def _picture():
    return PIL.Image.fromarray(np.arange(12, dtype=np.uint8).reshape(2, 2, 3))


def _quantized():
    return torch.quantize_per_tensor(torch.arange(6.0), 0.1, 3, torch.quint8)


def _deep():
    tree = torch.arange(2)
    for level in range(60):
        tree = {"level": level, "below": [tree]}
    return tree


def _many_leaves():
    return {f"field {n}": torch.full((n % 5,), n) for n in range(300)}


TENSORS = {
    **{
        str(dtype).removeprefix("torch."): (lambda dtype=dtype: torch.arange(6).to(dtype))
        for dtype in (
            torch.uint8,
            torch.uint16,
            torch.uint32,
            torch.uint64,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.bfloat16,
            torch.float32,
            torch.float64,
            torch.complex64,
            torch.complex128,
            torch.bool,
            torch.float8_e4m3fn,
            torch.float8_e5m2,
        )
    },
    "complex32": lambda: torch.ones(4, dtype=torch.float32).to(torch.complex32),
    "nan and infinities": lambda: torch.tensor([float("nan"), float("inf"), -0.0]),
    "no dimension": lambda: torch.tensor(3.5),
    "no element": lambda: torch.empty(0),
    "no element, many dimensions": lambda: torch.empty(4, 0, 3, dtype=torch.int16),
    "large": lambda: torch.arange(1_500_000, dtype=torch.int32).reshape(3, -1),
    "one element": lambda: torch.tensor([[[1]]]),
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).t(),
    "sliced": lambda: torch.arange(20.0).reshape(4, 5)[1:3, ::2],
    "offset": lambda: torch.arange(20.0)[7:],
    "small view of a large storage": lambda: torch.arange(1_000_000)[10:12],
    "channels last": lambda: torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(1)).to(
        memory_format=torch.channels_last
    ),
    "expanded": lambda: torch.arange(3).reshape(3, 1).expand(3, 4),
    "overlapping": lambda: torch.arange(6).as_strided((4, 3), (1, 1)),
    "leaf that requires grad": lambda: torch.ones(3, requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2, 2)),
    "frozen parameter": lambda: torch.nn.Parameter(torch.ones(2), requires_grad=False),
    "subclass": lambda: torch.arange(8.0).reshape(2, 4).as_subclass(Boxes),
    "subclass with an attribute": _labelled,
    "meta": lambda: torch.empty(2, 3, device="meta"),
    "sparse coo": lambda: torch.eye(4).to_sparse(),
    "sparse csr": lambda: torch.eye(4).to_sparse_csr(),
    "sparse csc": lambda: torch.eye(4).to_sparse_csc(),
    "sparse bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "nested, jagged": lambda: torch.nested.nested_tensor(
        [torch.arange(2.0), torch.arange(3.0)], layout=torch.jagged
    ),
    "nested, strided": lambda: torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(3, 2)]),
    "from numpy": lambda: torch.from_numpy(np.arange(5, dtype=np.float32)),
}

NUMPY_DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "longdouble", "complex64", "complex128",
    "S5", "U7",
)  # fmt: skip

ARRAYS = {
    **{
        f"array {dtype}": (lambda dtype=dtype: np.arange(6).astype(np.int8).astype(dtype))
        for dtype in NUMPY_DTYPES
    },
    "array datetime64": lambda: np.arange(4).astype("datetime64[ns]"),
    "array timedelta64": lambda: np.arange(4).astype("timedelta64[s]"),
    "array void": lambda: np.array([b"abcdef", b"ghijkl"], dtype="V6"),
    "array structured": lambda: np.array(
        [(1, 2.5, b"ab"), (3, 4.5, b"cd")], dtype=[("n", "<i4"), ("x", "<f8"), ("s", "S2")]
    ),
    "array record": lambda: np.rec.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "array object": lambda: np.array([1, "two", None, [4]], dtype=object),
    "array of nothing": lambda: np.empty((0, 3), dtype=np.float32),
    "array no dimension": lambda: np.array(7),
    "array fortran order": lambda: np.asfortranarray(np.arange(6).reshape(2, 3)),
    "array reversed": lambda: np.arange(6)[::-1],
    "array broadcast": lambda: np.broadcast_to(np.arange(3), (4, 3)),
    "array read-only": lambda: np.frombuffer(b"abcd", dtype=np.uint8),
    "array masked": lambda: np.ma.masked_array([1, 2, 3], mask=[False, True, False]),
    "array large": lambda: np.arange(700_000, dtype=np.float64).reshape(7, -1),
    "array mapped from a file": _memmap,
    "part of an array mapped from a file": lambda: _memmap(100)[10:20],
    "matrix": lambda: np.asmatrix(np.eye(2)),
    "scalar float32": lambda: np.float32(1.5),
    "scalar int8": lambda: np.int8(-3),
    "scalar bool": lambda: np.bool_(True),
    "scalar complex64": lambda: np.complex64(1 + 2j),
    "scalar str": lambda: np.str_("text"),
    "scalar datetime64": lambda: np.datetime64("2020-01-02"),
}

OBJECTS = {
    "none": lambda: None,
    "true": lambda: True,
    "int": lambda: -5,
    "huge int": lambda: 3**200,
    "float": lambda: 0.1,
    "nan": lambda: float("nan"),
    "complex": lambda: 1 + 2j,
    "str": lambda: "żółw 🐢",
    "empty str": lambda: "",
    "bytes": lambda: b"\x00\xff" * 10,
    "large bytes": lambda: bytes(300_000),
    "bytearray": lambda: bytearray(b"abc"),
    "python array": lambda: array.array("d", [1.5, 2.5]),
    "picture": _picture,
    "range": lambda: range(2, 9, 3),
    "slice": lambda: slice(1, 2),
    "set": lambda: {1, 2, 3},
    "frozenset": lambda: frozenset("ab"),
    "ellipsis": lambda: ...,
    "class": lambda: Point,
    "function": lambda: np.mean,
    "torch dtype": lambda: torch.float16,
    "torch size": lambda: torch.Size([1, 2]),
    "torch device": lambda: torch.device("cpu"),
    "enum": lambda: Colour.RED,
    "path": lambda: pathlib.PurePosixPath("a/b"),
    "decimal": lambda: decimal.Decimal("1.10"),
    "fraction": lambda: fractions.Fraction(1, 3),
    "date": lambda: datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc),
    "uuid": lambda: uuid.UUID(int=5),
    "namespace": lambda: types.SimpleNamespace(a=1, b="c"),
    "exception as a sample": lambda: ValueError("not raised, only delivered"),
    "stop iteration as a sample": lambda: StopIteration(3),
    "own class": OwnBatch,
    "own class with slots": WithSlots,
}

CONTAINERS = {
    "dict": lambda: {"image": torch.ones(2, 2), "label": 3},
    "empty dict": dict,
    "empty list": list,
    "empty tuple": tuple,
    "dict with odd keys": lambda: {1: torch.ones(1), (2, 3): "x", None: b"y", 1.5: True},
    "ordered dict": lambda: collections.OrderedDict(b=torch.ones(1), a=torch.zeros(2)),
    "default dict": lambda: collections.defaultdict(list, a=[torch.ones(1)]),
    "counter": lambda: collections.Counter("banana"),
    "deque": lambda: collections.deque([torch.ones(1), 2], maxlen=5),
    "list": lambda: [torch.ones(1), torch.zeros(2, 3), "name"],
    "tuple": lambda: (torch.ones(1), 4, None),
    "namedtuple": lambda: Point(torch.ones(2), y={"z": torch.zeros(1)}),
    "dataclass": lambda: Record(torch.ones(2, 2), 7, {"path": "a.png", "size": (1, 2)}),
    "packed sequence": _packed_sequence,
    "dict subclass": lambda: Tagged({"a": torch.ones(1)}, tag="kept"),
    "list subclass": lambda: OwnList([torch.ones(1), 2]),
    "mixed": lambda: {
        "tensors": [torch.ones(1), (torch.zeros(2, dtype=torch.bool), None)],
        "arrays": (np.arange(3), np.array("text")),
        "texts": ["a", b"b", ["c"]],
        "numbers": [1, 2.5, 3j, True],
    },
    "deep": _deep,
    "many leaves": _many_leaves,
    "tensors of many shapes": lambda: [torch.full((n, 3), n) for n in range(5)],
}

# Payloads that torch's own loader delivers changed: see test_differences.
CHANGED_BY_TORCH = {
    "conjugate view": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "negative view": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    "quantized": _quantized,
    "array big-endian": lambda: np.arange(6).astype(">i4"),
}

EVERYTHING = {**TENSORS, **ARRAYS, **OBJECTS, **CONTAINERS}


class MakePayload:
    """A picklable maker: it knows the name only, and builds in the worker."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self):
        return (EVERYTHING | CHANGED_BY_TORCH)[self.name]()


# What `default_collate` must batch: one sample each, of which a batch of three is made.
SAMPLES = {
    "tensor": lambda: torch.arange(4.0),
    "tensor float16": lambda: torch.ones(2, dtype=torch.float16),
    "tensor bfloat16": lambda: torch.ones(2, dtype=torch.bfloat16),
    "tensor bool": lambda: torch.tensor([True, False]),
    "tensor complex": lambda: torch.ones(2, dtype=torch.complex64),
    "tensor no dimension": lambda: torch.tensor(2),
    "tensor no element": lambda: torch.empty(0, 3),
    "tensor transposed": lambda: torch.arange(6.0).reshape(2, 3).t(),
    "tensor channels last": lambda: torch.ones(1, 3, 4, 4).to(memory_format=torch.channels_last)[0],
    "tensor expanded": lambda: torch.ones(1).expand(5),
    "tensor subclass": lambda: torch.ones(2, 4).as_subclass(Boxes),
    "tensor large": lambda: torch.arange(200_000, dtype=torch.int32),
    **{
        f"array {dtype}": (lambda dtype=dtype: np.arange(6).astype(dtype))
        for dtype in NUMPY_DTYPES[:15]
        if dtype != "longdouble"
    },
    "array no dimension": lambda: np.array(3.5, dtype=np.float32),
    "array of nothing": lambda: np.empty((0, 2)),
    "array fortran order": lambda: np.asfortranarray(np.arange(6).reshape(2, 3)),
    "array mapped from a file": _memmap,
    "scalar float32": lambda: np.float32(1.5),
    "scalar int64": lambda: np.int64(4),
    "scalar bool": lambda: np.bool_(True),
    "int": lambda: 3,
    "float": lambda: 0.1,
    "bool": lambda: True,
    "str": lambda: "name",
    "bytes": lambda: b"raw",
    "dict": lambda: {"a": 1, "b": torch.ones(2), "c": "text"},
    "ordered dict": lambda: collections.OrderedDict(b=1, a=2.0),
    "default dict": lambda: collections.defaultdict(int, a=1),
    "dict subclass": lambda: Tagged({"a": 1}, tag="kept"),
    "list": lambda: [1, torch.ones(2)],
    "list subclass": lambda: OwnList([1, 2]),
    "tuple": lambda: (torch.ones(2, 2), 3),
    "namedtuple": lambda: Point(1, {"z": torch.zeros(1)}),
    "range": lambda: range(3),
    "nested": lambda: {"a": [{"b": (1, torch.ones(1))}, "text"], "c": np.arange(2)},
    "empty dict": dict,
    "empty list": list,
}

# What `default_collate` refuses, in torch and in ours.
REFUSED_SAMPLES = {
    "none": (lambda: None, TypeError, "NoneType"),
    "object": (OwnBatch, TypeError, "OwnBatch"),
    "set": (lambda: {1}, TypeError, "set"),
    "complex number": (lambda: 1j, TypeError, "complex"),
    "array of text": (lambda: np.array(["a"]), TypeError, "U1"),
    "array of objects": (lambda: np.array([None]), TypeError, "object"),
    "big-endian array": (lambda: np.arange(2).astype(">i4"), (TypeError, ValueError), "byte order"),
    "sparse tensor": (lambda: torch.eye(2).to_sparse(), RuntimeError, "sparse"),
    "tensor that requires grad": (
        lambda: torch.ones(1, requires_grad=True),
        RuntimeError,
        "requires grad",
    ),
}


class MakeSample:
    """As `MakePayload`, for the samples that `default_collate` batches or refuses."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self):
        if self.name in SAMPLES:
            return SAMPLES[self.name]()
        return REFUSED_SAMPLES[self.name][0]()
