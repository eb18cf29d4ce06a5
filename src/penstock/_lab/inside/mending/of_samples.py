"""Mends of samples and batches."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from itertools import chain, count
from typing import Any, ClassVar, NamedTuple

from penstock._lab.inside import pickling
from penstock._lab.inside.batches import is_dense, is_tensor
from penstock._lab.inside.mending.mend import (
    Getting,
    Guarding,
    Mend,
    OfBatches,
    OfSamples,
    OfStreams,
)
from penstock._lab.inside.mending.trees import change_leaves

_DOUBLED = 20  # distances at which another sample is tried in place of a bad one: 1, 2, 4 …
_REPLAYED = 8  # samples that are loaded before they are given out again


class CloneSamples(Mend, OfSamples, OfBatches):
    """Views of large storages are copied, so that no storage travels whole."""

    name: ClassVar[str] = "clone-samples"

    def sample(self, sample: Any) -> Any:
        """Own memory for each tensor and array."""
        return change_leaves(sample, _own)

    def made(self, batch: Any) -> Any:
        """The same for what collate has put together."""
        return change_leaves(batch, _own)


class CompactSamples(CloneSamples):
    """The same under its other name."""

    name: ClassVar[str] = "compact-samples"


def _own(value: Any) -> Any:
    if is_tensor(value):
        if not is_dense(value):
            return value
        storage = value.untyped_storage()
        return value.clone() if storage.nbytes() > value.nbytes and not storage.is_shared() else value
    if getattr(value, "base", None) is not None and hasattr(value, "dtype"):
        return value.copy()
    return value


class DropKept(Mend, OfBatches):
    """Batches are copied out of shared memory before the program gets them: what it keeps is its own."""

    name: ClassVar[str] = "drop-kept"

    def arrived(self, batch: Any) -> Any:
        """A copy."""
        return change_leaves(batch, lambda value: value.clone() if is_tensor(value) else value)


class PackTensors(Mend, OfBatches):
    """The tensors of a batch travel as one for each dtype, and are views of it when they arrive."""

    name: ClassVar[str] = "pack-tensors"

    def in_worker(self, dataset: Any) -> None:
        """Let torch's own collate function put none of them into shared memory by itself."""
        del dataset
        torch: Any = sys.modules["torch"]
        collate: Any = sys.modules["torch.utils.data._utils.collate"]
        collate.default_collate_fn_map[torch.Tensor] = lambda batch, **_: torch.stack(batch)

    def made(self, batch: Any) -> Any:
        """Put them together."""
        torch: Any = sys.modules["torch"]
        flat: dict[Any, list[Any]] = {}
        begins: Counter[Any] = Counter()

        def take(value: Any) -> Any:
            if not is_tensor(value) or value.layout is not torch.strided:
                return value
            place = Place(str(value.dtype), begins[value.dtype], tuple(value.shape))
            begins[value.dtype] += value.numel()
            flat.setdefault(value.dtype, []).append(value.reshape(-1))
            return place

        tree = change_leaves(batch, take)
        return Packed(tree, {str(dtype): torch.cat(parts) for dtype, parts in flat.items()})

    def arrived(self, batch: Any) -> Any:
        """Take them apart."""
        return batch.unpack() if isinstance(batch, Packed) else batch


class Place:
    """Where a tensor lies in the packed one."""

    __slots__ = ("begin", "dtype", "shape")  # no attributes to open: it is a leaf

    def __init__(self, dtype: str, begin: int, shape: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.begin = begin
        self.shape = shape


class Packed:
    """A batch on its way."""

    def __init__(self, tree: Any, flat: dict[str, Any]) -> None:
        self._tree = tree
        self._flat = flat

    def unpack(self) -> Any:
        """The batch."""
        return change_leaves(self._tree, self._put)

    def _put(self, value: Any) -> Any:
        if not isinstance(value, Place):
            return value
        size = 1
        for length in value.shape:
            size *= length
        return self._flat[value.dtype][value.begin : value.begin + size].view(value.shape)


class Again(NamedTuple):
    """Stands for a batch that was made and not sent: the consumer gives its first one once more."""

    worker: int


class UnsentBatches(Mend, OfBatches):
    """Batches are made, and only the first of each worker is sent: what is missing is the way alone."""

    name: ClassVar[str] = "unsent-batches"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self._is_sent = False
        self._first: Any = None

    def made(self, batch: Any) -> Any:
        """The first batch, then a token."""
        if self._is_sent:
            return Again(os.getpid())
        self._is_sent = True
        return batch

    def arrived(self, batch: Any) -> Any:
        """The batch, or one that came before."""
        if isinstance(batch, Again):
            return self._first
        self._first = batch
        return batch


class PlainResults(Mend, OfBatches):
    """What cannot be pickled in a batch is replaced by its text."""

    name: ClassVar[str] = "plain-results"

    def made(self, batch: Any) -> Any:
        """Leaf by leaf; the whole batch when it still refuses."""
        if not pickling.refusal(batch):
            return batch
        batch = change_leaves(batch, lambda value: repr(value) if pickling.refusal(value) else value)
        return repr(batch) if pickling.refusal(batch) else batch


class CachedSamples(Mend, Getting, OfStreams):
    """After its first samples a process gives out these again: what reading and decoding cost is gone."""

    name: ClassVar[str] = "cached-samples"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self._kept: list[Any] = []
        self._given = 0

    def get(self, inner: Any, index: Any) -> Any:
        """A sample, new at first."""
        return self._replay(lambda: inner(index))

    def _replay(self, load: Callable[[], Any]) -> Any:
        if len(self._kept) < _REPLAYED:
            self._kept.append(load())
            return self._kept[-1]
        self._given += 1
        return self._kept[self._given % len(self._kept)]


class SkipIndex(Mend, Getting):
    """Some indices ("17" or "4,5,6") are never asked for; the next one before takes their place, or after."""

    name: ClassVar[str] = "skip-index"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self._skipped = frozenset(int(each) for each in argument.split(","))

    def get(self, inner: Any, index: Any) -> Any:
        """The sample, or its neighbour; a whole batch where the dataset is asked for one at once."""
        if isinstance(index, list):
            return inner([self._instead(each) for each in index])
        return inner(self._instead(index))

    def _instead(self, index: Any) -> Any:
        if not isinstance(index, int) or index not in self._skipped:
            return index
        around = chain(range(index, -1, -1), count(index))
        return next(other for other in around if other not in self._skipped)


class SkipRaising(Mend, Getting, OfStreams):
    """A sample that raises is replaced by one that does not; of a stream it is left out."""

    name: ClassVar[str] = "skip-raising"

    def get(self, inner: Any, index: Any) -> Any:
        """The sample, or one before or after it, farther and farther away: bad ones often come in a row."""
        try:
            return inner(index)
        except Exception:
            if not isinstance(index, int):
                raise
            for step in (1 << k for k in range(_DOUBLED)):
                for other in (index - step, index + step):
                    with contextlib.suppress(Exception):
                        if other >= 0:
                            return inner(other)
            raise

    def next_of(self, stream: Any) -> Any:
        """The next sample that does not raise; a generator that has raised is at its end."""
        for _ in range(_DOUBLED):
            try:
                return next(stream)
            except StopIteration:
                raise
            except Exception:  # noqa: BLE001, S112 - whatever the program raises
                continue
        raise StopIteration


class SkipOdd(Mend, OfSamples):
    """Samples that are None, or unlike most of their batch, are replaced by one of the others."""

    name: ClassVar[str] = "skip-odd"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self._good: Any = None  # for a batch in which every sample is bad

    def together(self, samples: Any) -> Any:
        """The batch, all of one form."""
        from penstock._lab.inside.samples import describe

        if not isinstance(samples, (list, tuple)) or not samples:
            return samples
        forms = [describe(sample, has_digest=False)["shape"] for sample in samples]
        usual = Counter(form for form in forms if form != "None").most_common(1)
        if usual:
            self._good = samples[forms.index(usual[0][0])]
        form = usual[0][0] if usual else ""
        return [sample if each == form else self._good for sample, each in zip(samples, forms, strict=True)]


class StopIterationRaises(Mend, Guarding):
    """StopIteration out of a map-style dataset, or out of collate, becomes RuntimeError."""

    name: ClassVar[str] = "stop-iteration-raises"

    def get(self, inner: Any, index: Any) -> Any:
        """The sample."""
        try:
            return inner(index)
        except StopIteration as error:
            raise RuntimeError("StopIteration was raised") from error


class PlainExceptions(Mend, Guarding, OfStreams):
    """An exception whose type cannot be pickled is raised as RuntimeError, with its text."""

    name: ClassVar[str] = "plain-exceptions"

    def get(self, inner: Any, index: Any) -> Any:
        """The sample."""
        try:
            return inner(index)
        except Exception as error:
            if pickling.refusal(type(error)):
                raise RuntimeError(f"{type(error).__name__}: {error}") from None
            raise

    def next_of(self, stream: Any) -> Any:
        """The next sample of a stream."""
        return self.get(next, stream)


class NoExits(Mend, Guarding, OfStreams):
    """A dataset that ends its process raises RuntimeError instead."""

    name: ClassVar[str] = "no-exits"

    def get(self, inner: Any, index: Any) -> Any:
        """The sample; the functions that would end the process are there again afterwards."""
        kill = os.kill
        plain = [(os, "_exit", os._exit), (os, "abort", os.abort), (os, "kill", kill)]
        plain.append((signal, "raise_signal", signal.raise_signal))
        for module, name, _ in plain:
            setattr(module, name, _refuse(name))
        os.kill = lambda pid, number: (
            _refuse("kill")() if pid == os.getpid() and number else kill(pid, number)
        )
        try:
            return inner(index)
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(f"{type(error).__name__} was raised") from error
        finally:
            for module, name, function in plain:
                setattr(module, name, function)

    def next_of(self, stream: Any) -> Any:
        """The next sample of a stream."""
        return self.get(next, stream)


def _refuse(name: str) -> Any:
    def refuse(*_: Any) -> Any:
        raise RuntimeError(f"{name} was called")

    return refuse


class ShardIterable(Mend, OfStreams):
    """Worker w of n yields only sample w of the stream, and then every n-th."""

    name: ClassVar[str] = "shard-iterable"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self._begun: dict[int, Any] = {}  # streams, kept so that no other gets their identity

    def next_of(self, stream: Any) -> Any:
        """The next sample that is this worker's."""
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        if info is None:
            return next(stream)
        is_first = id(stream) not in self._begun
        self._begun[id(stream)] = stream
        for _ in range(info.id if is_first else info.num_workers - 1):
            next(stream)
        return next(stream)
