"""The short form of a plain batch: lists, tuples and dicts of tensors, strings and numbers.

Most batches are no more than that. Their outline, the batch with `...` in the place of every tensor, is
marshalled together with one leaf per tensor, which costs a tenth of a pickle on either side:

    {"image": Tensor, "name": ["a", "b"]}  ──▶  {"image": ..., "name": ["a", "b"]}, [(offset, dtype, shape)]

Guarantees: exact types only, and no object twice, so that what is drawn is equal to the batch in type and
identity; anything else raises `NotPlain`, and the pickle of `codec` takes it.

Pure, but for the bytes of tensors that `place` puts into the slab.
"""

from __future__ import annotations

import marshal
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Leaf = tuple[int, int, tuple[int, ...]]  # offset in the slab, number of the dtype, shape
Placer = Callable[[torch.Tensor, int], int]  # puts so many bytes of a tensor into the slab: their offset


class NotPlain(Exception):  # noqa: N818 - a turn of the road, seen by no user
    """The batch needs a pickle."""


_DTYPES = sorted({each for each in vars(torch).values() if isinstance(each, torch.dtype)}, key=str)
_NUMBERS = {dtype: number for number, dtype in enumerate(_DTYPES)}
# Two calls of numpy are quicker than torch.frombuffer and a view; it lacks bfloat16 and such.
_NUMPY: dict[int, Any] = {
    _NUMBERS[each]: np.dtype(str(each).removeprefix("torch."))
    for each in _DTYPES
    if each is torch.bool or hasattr(np, str(each).removeprefix("torch."))
}
_SCALARS = frozenset({str, int, float, bool, bytes, complex, type(None)})


def sketch(batch: Any, place: Placer) -> bytes:
    """The outline of a batch whose tensors `place` has put into the slab."""
    leaves: list[Leaf] = []
    return marshal.dumps((_trace(batch, place, leaves, set()), leaves))


def draw(outline: Any, view: memoryview) -> Any:
    """The batch of an outline, its tensors views of the slab."""
    tree, leaves = marshal.loads(outline)  # noqa: S302 - our own worker wrote it into our own memory
    if not leaves:
        return tree
    tensors = [_tensor(view, *leaf) for leaf in leaves]
    return _fill(tree, iter(tensors))


def _trace(value: Any, place: Placer, leaves: list[Leaf], seen: set[int]) -> Any:
    kind = type(value)
    if kind in _SCALARS or (kind is tuple and _SCALARS.issuperset(map(type, value))):
        return value
    if id(value) in seen:
        raise NotPlain  # a pickle keeps one object one, and ends where a batch contains itself
    seen.add(id(value))
    if kind is torch.Tensor:
        return _leaf(value, place, leaves)
    if kind is dict:
        if not _SCALARS.issuperset(map(type, value)):
            raise NotPlain
        return {key: _trace(each, place, leaves, seen) for key, each in value.items()}
    if kind is list or kind is tuple:
        if _SCALARS.issuperset(map(type, value)):
            return value
        return kind([_trace(each, place, leaves, seen) for each in value])
    raise NotPlain


def _leaf(tensor: torch.Tensor, place: Placer, leaves: list[Leaf]) -> Any:
    if (
        not tensor.is_cpu
        or tensor.layout is not torch.strided
        or not tensor.is_contiguous()
        or tensor.requires_grad
        or tensor.is_conj()
        or tensor.is_neg()
        or tensor.is_nested
        or tensor.is_quantized
        or not (nbytes := tensor.nbytes)
    ):
        raise NotPlain
    leaves.append((place(tensor, nbytes), _NUMBERS[tensor.dtype], tuple(tensor.shape)))
    return ...


def _fill(tree: Any, tensors: Any) -> Any:
    """The tree with tensors for its `...`, in the order in which `_trace` met them."""
    if tree is ...:
        return next(tensors)
    kind = type(tree)
    if kind is dict:
        return {key: _fill(each, tensors) for key, each in tree.items()}
    if kind is list or kind is tuple:
        if _SCALARS.issuperset(map(type, tree)):
            return tree
        return kind([_fill(each, tensors) for each in tree])
    return tree


def _tensor(view: memoryview, offset: int, dtype: int, shape: tuple[int, ...]) -> torch.Tensor:
    known = _NUMPY.get(dtype)
    if known is not None:
        return torch.from_numpy(np.ndarray(shape, known, view, offset))
    flat = torch.frombuffer(view, dtype=_DTYPES[dtype], count=math.prod(shape), offset=offset)
    return flat.view(shape)
