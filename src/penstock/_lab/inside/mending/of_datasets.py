"""Mends of what a dataset holds."""

from __future__ import annotations

import contextlib
import copy
import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from penstock._lab.inside import attributes, kinds, pickling, things
from penstock._lab.inside import walk as walking
from penstock._lab.inside.batches import is_tensor
from penstock._lab.inside.mending.mend import Getting, Mend, MendError
from penstock._lab.inside.mending.trees import change_leaves, put, swap
from penstock._lab.inside.state import State
from penstock._lab.inside.walk import reachable, walk
from penstock._lab.inside.weighing import weigh

_PAUSE_S = 0.002  # between seek and read, so that a race that is rare becomes common
_LARGE = 10_000  # elements of a list that is packed
_PUT_BACK = 256 << 20  # bytes of arrays that are put back after each sample, at most
_PROBE_S = 5.0  # to find where a dataset ends
_MOST_PARCEL = 1 << 20  # bytes of one attribute that is sent to persistent workers


class ReopenHandles(Mend):
    """Every file that a worker has inherited is opened again, so that it has an offset of its own.

    The new description takes the place of the old one under the same descriptor, whatever object uses it.
    Databases and sockets are connected anew.
    """

    name: ClassVar[str] = "reopen-handles"

    def in_worker(self, dataset: Any) -> None:
        """Open all again."""
        reopened = sum(map(_reopen, _inherited()))
        connected = swap(dataset, _is_connection, _connect)
        if not reopened and not connected:
            raise MendError("no file, database or socket was open")


def _inherited() -> list[int]:
    return sorted(int(path.name) for path in Path("/proc/self/fd").iterdir() if int(path.name) > 2)  # noqa: PLR2004


def _reopen(fd: int) -> bool:
    try:
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        if not stat.S_ISREG(os.fstat(fd).st_mode) or flags & os.O_ACCMODE == os.O_WRONLY:
            return False
        offset = os.lseek(fd, 0, os.SEEK_CUR)
        new = os.open(f"/proc/self/fd/{fd}", (flags & ~os.O_CREAT & ~os.O_TRUNC) | os.O_CLOEXEC)
    except OSError:
        return False
    os.lseek(new, offset, os.SEEK_SET)
    os.dup2(new, fd, inheritable=False)
    os.close(new)
    return True


def _is_connection(value: Any) -> bool:
    return kinds.kind_of(value) in {"database", "lmdb", "socket"}


def _connect(value: Any) -> Any:
    kind = kinds.kind_of(value)
    try:
        if kind == "socket":
            import socket

            new = socket.socket(value.family, value.type)
            new.connect(value.getpeername())
            return new
        return _open_lmdb(value) if kind == "lmdb" else _open_sqlite(value)
    except Exception as error:  # noqa: BLE001 - whatever these libraries raise
        raise MendError(f"{type(value).__name__} could not be connected again: {error}") from None


def _open_sqlite(value: Any) -> Any:
    import sqlite3

    if not isinstance(value, sqlite3.Connection):
        raise MendError("not of sqlite3")
    path = value.execute("PRAGMA database_list").fetchone()[2]
    new = sqlite3.connect(path, check_same_thread=False)
    new.row_factory, new.text_factory = value.row_factory, value.text_factory
    return new


def _open_lmdb(value: Any) -> Any:
    import lmdb  # type: ignore[import-not-found]

    path, flags = value.path(), value.flags()
    with contextlib.suppress(Exception):
        value.close()
    return lmdb.open(path, readonly=True, lock=False, subdir=flags.get("subdir", True), readahead=False)


class WidenRaces(Mend):
    """Between seek and read of a file that a worker has inherited lies a pause."""

    name: ClassVar[str] = "widen-races"

    def in_worker(self, dataset: Any) -> None:
        """Slow files in the places of files."""
        plain = os.lseek

        def lseek(*args: Any) -> int:
            place = plain(*args)
            time.sleep(_PAUSE_S)
            return place

        os.lseek = lseek
        swapped = swap(dataset, _is_file, SlowSeek)
        for _, value, _ in reachable(dataset, "dataset"):
            for name in ("fp", "fileobj"):  # archives: the file lies in an attribute of a library's class
                inner = getattr(value, name, None) if kinds.kind_of(value) == "archive" else None
                if inner is not None and not isinstance(inner, SlowSeek):
                    setattr(value, name, SlowSeek(inner))
                    swapped += 1
        if not swapped:
            raise MendError("no open file was found on the dataset")


def _is_file(value: Any) -> bool:
    return kinds.kind_of(value) == "open-file" and hasattr(value, "seek") and not isinstance(value, SlowSeek)


class SlowSeek:
    """A file whose seek takes its time."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def seek(self, *args: Any) -> Any:
        """Move, then wait."""
        place = self._file.seek(*args)
        time.sleep(_PAUSE_S)
        return place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def __next__(self) -> Any:
        return next(self._file)

    def __enter__(self) -> SlowSeek:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class ReseedRngObjects(Mend):
    """Random generators kept in the dataset or the collate function are seeded for each worker and pass."""

    name: ClassVar[str] = "reseed-rng-objects"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self._collate: Any = None

    def before_iter(self, loader: Any, number: int) -> None:
        """In the consumer: forked workers have it too."""
        del number
        self._collate = loader.collate_fn

    def of_pass(self, dataset: Any, number: int) -> Any:
        """In a worker only: in the consumer there is just one."""
        from torch.utils.data import get_worker_info

        from penstock._engine import rng_objects

        info = get_worker_info()
        if info is None:
            return dataset
        known = {"rng", "torch-generator"}
        parts = (*reachable(dataset, "dataset"), *reachable(self._collate, "collate_fn"))
        found = [(path, value) for path, value, _ in parts if kinds.kind_of(value) in known]
        if not found:
            raise MendError("no generator was found on the dataset")
        rng_objects.reseed(found, int(info.seed) + (number << 32), info.id)
        return dataset


class NoLocks(Mend):
    """Locks of threads and processes, on the dataset or among the globals that it uses, do nothing."""

    name: ClassVar[str] = "no-locks"

    def in_worker(self, dataset: Any) -> None:
        """Free locks in the places of locks, and of those that files have."""
        fcntl.flock = fcntl.lockf = lambda *_: None
        if not swap(dataset, _is_lock, _freed) and not _locks_files(dataset):
            raise MendError("no lock was found on the dataset")


def _is_lock(value: Any) -> bool:
    return kinds.kind_of(value) in {"lock", "mp-lock"} and hasattr(value, "acquire")


def _locks_files(dataset: Any) -> bool:
    """Whether a module of the dataset's classes uses locks of files."""
    kinds_ = {type(value) for _, value, _ in walk(dataset, "dataset", most=200)}
    modules = filter(None, (sys.modules.get(kind.__module__) for kind in kinds_))
    return any(held is fcntl for module in modules for held in list(vars(module).values()))


def _freed(value: Any) -> Any:
    """A free lock; a shared value or array keeps its value, and gives its own lock away."""
    free = FreeLock()
    if not hasattr(value, "get_lock"):
        return free
    value._lock, value.acquire, value.release = free, free.acquire, free.release  # noqa: SLF001
    return value


class FreeLock:
    """A lock that everybody has."""

    def acquire(self, *_: Any, **__: Any) -> bool:
        """At once."""
        return True

    def release(self, *_: Any) -> None:
        """Nothing to give back."""

    def locked(self) -> bool:
        """Never."""
        return False

    def notify(self, *_: Any) -> None:
        """Nobody waits."""

    notify_all = notify

    def wait(self, *_: Any) -> bool:
        """As if somebody had notified, a moment later."""
        time.sleep(_PAUSE_S)
        return True

    def wait_for(self, predicate: Any, timeout: float | None = None) -> bool:
        """Until it is so, or for `timeout`."""
        end = time.monotonic() + (60.0 if timeout is None else timeout)
        while not (is_so := bool(predicate())) and time.monotonic() < end:
            self.wait()
        return is_so

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        return None


class CopySamples(Mend, Getting):
    """What samples change in the dataset is forgotten: each pass works on a copy of how it was first.

    Arrays of the copy are put back after each sample too, which may have changed a neighbour.
    """

    name: ClassVar[str] = "copy-samples"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self._first: dict[int, Any] = {}
        self._changing: list[tuple[Any, Any]] = []  # arrays of the copy, each with how it was

    def before_iter(self, loader: Any, number: int) -> None:
        """In the consumer, before the first worker could have changed anything."""
        del number
        self._keep(loader.dataset)

    def of_pass(self, dataset: Any, number: int) -> Any:
        """A copy of how it was first."""
        del number
        first = self._keep(dataset)
        fresh = copy.deepcopy(first)
        was, now = (dict(_arrays(each)) for each in (first, fresh))
        nbytes = sum(array.nbytes for array in was.values())
        self._changing = (
            [(now[path], was[path]) for path in was if path in now] if nbytes <= _PUT_BACK else []
        )
        return fresh

    def get(self, inner: Any, index: Any) -> Any:
        """The sample, as a copy where the arrays behind it are put back."""
        sample = inner(index)
        if not self._changing:
            return sample
        sample = change_leaves(sample, _copied)
        for array, first in self._changing:
            array[...] = first
        return sample

    def _keep(self, dataset: Any) -> Any:
        if id(dataset) not in self._first:
            try:  # the dataset is kept too, so that no other gets its identity
                self._first[id(dataset)] = dataset, copy.deepcopy(dataset)
            except Exception as error:  # noqa: BLE001 - handles, locks
                raise MendError(f"the dataset cannot be copied: {error}") from None
        return self._first[id(dataset)][1]


def _arrays(dataset: Any) -> Iterator[tuple[str, Any]]:
    for path, value, _ in walk(dataset, "dataset"):
        if is_tensor(value) or type(value).__name__ == "ndarray":
            yield path, value


def _copied(value: Any) -> Any:
    if is_tensor(value):
        return value.clone()
    return value.copy() if type(value).__name__ == "ndarray" else value


class NoCache(Mend, Getting):
    """Containers of the dataset that have grown are emptied: after each sample; of a stream, each batch."""

    name: ClassVar[str] = "no-cache"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self._state: State | None = None

    def of_pass(self, dataset: Any, number: int) -> Any:
        """What they hold at first."""
        del number
        self._state = State(dataset, None)
        return dataset

    def get(self, inner: Any, index: Any) -> Any:
        """One batch may read all that there is to keep."""
        sample = inner(index)
        if self._state is not None:
            self._state.shrink()
        return sample

    def done(self, dataset: Any, state: Any) -> None:
        """Down to what they held at first."""
        del dataset
        if state is not None:
            state.shrink()


class PackLists(Mend):
    """Large lists and dictionaries of Python objects are packed into a few buffers."""

    name: ClassVar[str] = "pack-lists"

    def before_iter(self, loader: Any, number: int) -> None:
        """Once, before workers are started."""
        if number:
            return
        parts = (loader.dataset, loader.collate_fn)
        if not sum(swap(part, _is_large, _pack) for part in parts if part is not None):
            raise MendError("no large list was found on the dataset")


def _is_large(value: Any) -> bool:
    if type(value) not in (list, tuple, dict):
        return False
    return len(value) >= _LARGE or (len(value) >= things.NESTED and weigh(value)[0] >= _LARGE)


def _pack(value: Any) -> Any:
    from penstock._arena.packing import PackedList

    return PackedDict(value) if isinstance(value, dict) else PackedList.pack(list(value))


class PackedDict(Mapping[Any, Any]):
    """A dictionary in flat buffers, for workers that were forked: hashes are those of one process."""

    def __init__(self, old: dict[Any, Any]) -> None:
        import numpy as np

        from penstock._arena.packing import PackedList

        hashes = np.array([hash(key) for key in old], np.int64)
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._order = hashes[order], order
        self._keys, self._values = PackedList.pack(list(old)), PackedList.pack(list(old.values()))

    def __getitem__(self, key: Any) -> Any:
        place = int(self._hashes.searchsorted(hash(key)))
        while place < len(self._hashes) and self._hashes[place] == hash(key):
            if self._keys[int(self._order[place])] == key:
                return self._values[int(self._order[place])]
            place += 1
        raise KeyError(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class FreshAttributes(Mend):
    """Persistent workers get what the program has changed since, at the beginning of each pass."""

    name: ClassVar[str] = "fresh-attributes"

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        self._file = ""
        self._collate_fn: Any = None

    def beside(self, log: str) -> None:
        """Where the attributes are handed over."""
        self._file = f"{log}.attributes"

    def with_(self, collate_fn: Any) -> None:
        """In a worker: its collate function."""
        self._collate_fn = collate_fn

    def before_iter(self, loader: Any, number: int) -> None:
        """In the consumer: write them down."""
        del number
        import pickle

        found: dict[str, bytes] = {}
        for path, _, _, value in _held(loader.dataset, loader.collate_fn):
            if _is_simple(value):
                with contextlib.suppress(Exception):
                    found[path] = pickle.dumps(value)
        partial = Path(self._file + ".new")
        partial.write_bytes(pickle.dumps(found))
        partial.rename(self._file)

    def of_pass(self, dataset: Any, number: int) -> Any:
        """In a worker: take them over."""
        from torch.utils.data import get_worker_info

        if number and get_worker_info() is not None:
            import pickle

            sent = pickle.loads(Path(self._file).read_bytes())
            for path, holder, name, _ in list(_held(dataset, self._collate_fn)):
                if path in sent:
                    put(holder, name, pickle.loads(sent[path]))
        return dataset


def _held(dataset: Any, collate_fn: Any) -> Iterator[tuple[str, Any, str, Any]]:
    """What samples are made with, by path: who holds it, under which name, and the value."""
    for path, value, _ in attributes.parts(dataset, collate_fn):
        for step, part in walking.attributes(value):
            yield path + step, value, step[1:], part
    for used in attributes.outside(dataset, collate_fn):
        yield used.path, used.holder, used.name, used.value
        for step, part in walking.attributes(used.value):
            yield used.path + step, used.value, step[1:], part


def _is_simple(value: Any) -> bool:
    if isinstance(value, (int, float, bool, str, bytes, type(None))):
        return True
    if isinstance(value, (list, tuple, dict, set)):
        return len(value) <= _LARGE and pickling.refusal(value) == ""
    return hasattr(value, "dtype") and getattr(value, "nbytes", _MOST_PARCEL) < _MOST_PARCEL


class TrueLength(Mend):
    """`len(dataset)` is where the dataset really ends, found by asking it."""

    name: ClassVar[str] = "true-length"

    def before_iter(self, loader: Any, number: int) -> None:
        """Once, before indices are drawn."""
        if number:
            return
        dataset = loader.dataset
        length = _count(dataset) if getattr(loader, "_dataset_kind", 0) == 1 else find_end(dataset)
        if length is None:
            raise MendError("no end of the dataset was found")
        kind = type(dataset)
        plain = kind.__len__
        kind.__len__ = lambda self: length if self is dataset else plain(self)


def _count(dataset: Any) -> int | None:
    until = time.monotonic() + _PROBE_S
    number = 0
    for number, _ in enumerate(dataset, 1):  # noqa: B007 - used after the loop
        if time.monotonic() > until:
            return None
    return number


def find_end(dataset: Any, seconds: float = _PROBE_S) -> int | None:
    """The first index that raises IndexError or KeyError; None when it is not found in that time.

    Takes it that all indices before the end are there.
    """
    until = time.monotonic() + seconds
    length = len(dataset)
    low, high = 0, max(1, length)
    if _has(dataset, max(0, length - 1)):
        low, step = length, 1
        while _has(dataset, low):
            if time.monotonic() > until or step > 4 * length + 1_000:
                return None
            low, step = low + step, step * 2
        low, high = max(length, low - step // 2), low
    while low < high:
        if time.monotonic() > until:
            return None
        middle = (low + high) // 2
        if _has(dataset, middle):
            low = middle + 1
        else:
            high = middle
    return low


def _has(dataset: Any, index: int) -> bool:
    try:
        dataset[index]
    except (IndexError, KeyError, ValueError):
        return False
    except StopIteration:
        return False
    return True


class KeepPickledTensors(Mend):
    """Tensors that come up while the dataset is pickled are kept until the program ends."""

    name: ClassVar[str] = "keep-pickled-tensors"

    def in_process(self) -> None:
        """Around the reducers with which torch sends tensors."""
        from multiprocessing.reduction import ForkingPickler

        torch: Any = sys.modules["torch"]
        reducers: Any = ForkingPickler._extra_reducers  # type: ignore[attr-defined]  # noqa: SLF001
        for kind, reduce in list(reducers.items()):
            if isinstance(kind, type) and issubclass(kind, (torch.Tensor, torch.UntypedStorage)):
                reducers[kind] = _keeping(reduce)


_kept: list[Any] = []


def _keeping(reduce: Any) -> Any:
    def keep(value: Any) -> Any:
        _kept.append(value)
        return reduce(value)

    return keep
