"""A job on its way to a clean process.

    pack (consumer) ──▶ manifest + descriptors ──▶ unpack (zygote)

The job is pickled with cloudpickle, so lambdas, closures, local and notebook classes go by value, and
`__main__` is not run again. Arrays and tensors go out of band: large ones as the one shared copy
(`_arena.sharing`), the rest in a segment beside the pickle. Locks, queues and shared tensors of
multiprocessing go with their descriptors, as in torch's `spawn`.

What cannot go is refused here, before any process is started, with its attribute path.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import threading
from collections import ChainMap
from dataclasses import fields, replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from penstock._arena import sharing
from penstock._arena.segment import Segment
from penstock._base import libc
from penstock._engine.backends.spawning import Spawning, received
from penstock._engine.job import Job
from penstock._engine.unpicklable import find_unpicklable
from penstock.errors import PenstockError, ShippingError

_ALIGNMENT = 64

# What guards one process's threads starts anew in another: unlocked, empty.
_FRESH: dict[type, Any] = {
    type(threading.Lock()): lambda _: (threading.Lock, ()),
    type(threading.RLock()): lambda _: (threading.RLock, ()),
    threading.local: lambda _: (threading.local, ()),
}


class Manifest(NamedTuple):
    """What the zygote needs to find everything."""

    skeleton: tuple[int, int]  # offset and bytes of the pickle in the first segment
    buffers: tuple[tuple[int, int, int], ...]  # (descriptor, offset, bytes) of each buffer
    sizes: tuple[int, ...]  # bytes of each segment, the first of the descriptors
    path: tuple[str, ...]
    argv: tuple[str, ...]
    directory: str


class Cargo(NamedTuple):
    """The manifest and the descriptors that go with it."""

    manifest: Manifest
    fds: list[int]
    own: Segment
    spawning: Spawning
    kept: Any  # the buffers: a segment of the consumer's own memory ends with its array

    def close(self) -> None:
        """Close what was opened for this journey."""
        self.own.close()
        self.spawning.close()


def working_directory() -> str:
    """Where a fresh process begins: where the consumer is."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return "/"  # somebody removed it, and no interpreter is sure to start there


def pack(job: Job) -> Cargo:
    """Make a job ready for the journey; ShippingError names what cannot go."""
    stream, spawning = io.BytesIO(), Spawning()
    shipper = _shipper(job.packed)(stream)
    try:
        with spawning:
            shipper.dump(replace(job, packed={}))
        return _load(shipper, stream.getbuffer(), spawning)
    except BaseException as failure:
        spawning.close()
        if isinstance(failure, Exception) and not isinstance(failure, PenstockError):
            raise _refusal(job, failure) from failure
        raise


def unpack(manifest: Manifest, fds: list[int]) -> Job:
    """Rebuild the job. Called once, in the zygote."""
    sys.path[:], sys.argv[:] = manifest.path, manifest.argv
    os.chdir(manifest.directory)
    mappings = [
        memoryview(Segment(fd, nbytes).map(private=True).whole).cast("B")
        for fd, nbytes in zip(fds, manifest.sizes, strict=False)
    ]
    buffers = [mappings[which][start : start + nbytes] for which, start, nbytes in manifest.buffers]
    start, nbytes = manifest.skeleton
    with received(fds[len(manifest.sizes) :]):
        stream = io.BytesIO(mappings[0][start : start + nbytes])
        job: Job = _Unloader(stream, buffers=buffers).load()
    for fd in fds:
        os.close(fd)
    return job


def _load(shipper: Any, skeleton: memoryview, spawning: Spawning) -> Cargo:
    own = Segment.create()
    try:
        return _load_into(own, shipper, skeleton, spawning)
    except BaseException:
        own.close()
        raise


def _load_into(own: Segment, shipper: Any, skeleton: memoryview, spawning: Spawning) -> Cargo:
    segments, table, used = [own], [], 0
    small: list[tuple[int, memoryview]] = []
    for buffer in shipper.buffers:
        view, array = buffer.raw(), memoryview(buffer).obj
        berth = sharing.share(view, shipper.owners.get(id(array), array))
        if berth is not None:
            segments.append(berth.segment)
            table.append((len(segments) - 1, berth.offset, view.nbytes))
        else:
            used = -(-used // _ALIGNMENT) * _ALIGNMENT
            table.append((0, used, view.nbytes))
            small.append((used, view))
            used += view.nbytes
    own.reserve(max(used + len(skeleton), libc.PAGE))
    whole = memoryview(own.map().whole).cast("B")
    for offset, view in small:
        whole[offset : offset + view.nbytes] = view
    whole[used : used + len(skeleton)] = skeleton
    manifest = Manifest(
        (used, len(skeleton)),
        tuple(table),
        tuple(segment.nbytes for segment in segments),
        tuple(sys.path),
        tuple(sys.argv),
        working_directory(),
    )
    fds = [*(segment.fd for segment in segments), *spawning.fds]
    return Cargo(manifest, fds, own, spawning, shipper.buffers)


class _Unloader(pickle.Unpickler):
    """Unpickles a job; packed lists come in the place of the originals."""

    def persistent_load(self, pid: Any) -> Any:
        return pid


def _shipper(packed: dict[int, Any]) -> Any:
    import cloudpickle

    class Shipper(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
        dispatch_table: ClassVar[Any] = ChainMap(
            _FRESH,
            cloudpickle.Pickler.dispatch_table,
            ForkingPickler._extra_reducers,  # type: ignore[attr-defined]  # noqa: SLF001
        )

        def __init__(self, stream: io.BytesIO) -> None:
            self.buffers: list[pickle.PickleBuffer] = []
            self.owners: dict[int, Any] = {}  # whose memory an array shows, where it is not its own
            super().__init__(stream, protocol=5, buffer_callback=self.buffers.append)

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return _reduce_tensor(value, self.owners)
            if isinstance(value, np.memmap) and _is_whole_file(value):
                return _memmap, (value.filename, value.dtype, value.offset, value.shape)
            return super().reducer_override(value)

        if packed:  # called for every single object, so only when asked for

            def persistent_id(self, value: Any) -> Any:
                found = packed.get(id(value)) if type(value) is list else None
                return None if found is None else found[1]

    return Shipper


def _reduce_tensor(tensor: Any, owners: dict[int, Any]) -> Any:
    if tensor.device.type not in ("cpu", "meta"):
        raise TypeError(f"cannot ship a tensor on {tensor.device}")
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided
    if not plain or tensor.is_quantized or tensor.is_nested or tensor.is_shared():
        return NotImplemented  # torch's own reducers: shared memory stays shared
    if tensor.requires_grad or not tensor.is_contiguous() or not tensor.numel():
        return tensor.__reduce_ex__(5)
    array = tensor.view(-1).view(torch.uint8).numpy()
    owners[id(array)] = tensor
    return _tensor, (pickle.PickleBuffer(array), tensor.dtype, tuple(tensor.shape))


def _tensor(buffer: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.frombuffer(buffer, dtype=dtype).view(shape)


def _is_whole_file(array: np.memmap[Any, Any]) -> bool:
    # A slice of a memmap carries its parent's offset: only the map itself can be opened again.
    return (
        array.filename is not None
        and type(array.base).__name__ == "mmap"
        and array.flags.c_contiguous
        and Path(array.filename).exists()
    )


def _memmap(filename: str, dtype: Any, offset: int, shape: Any) -> Any:
    return np.memmap(filename, dtype=dtype, mode="c", offset=offset, shape=shape)


def _refusal(job: Job, failure: Exception) -> ShippingError:
    for field in fields(job):
        part = getattr(job, field.name)
        if not _can_go(part):
            path, what = find_unpicklable(part, field.name, _dumps)
            break
    else:
        path, what = "job", "cannot be pickled"
    return ShippingError(
        "PS503",
        f"the workers' start method ships the dataset to a fresh process, but `{path}` {what}",
        why=f"{type(failure).__name__}: {failure}",
        fix=f"open or build `{path}` on first use in the worker or in `worker_init_fn`, or drop it "
        "in `__getstate__`; or pass multiprocessing_context='fork'",
    )


def _can_go(part: Any) -> bool:
    try:
        _dumps(part)
    except Exception:  # noqa: BLE001 - whatever pickling user objects raises
        return False
    return True


def _dumps(part: Any) -> None:
    with Spawning() as spawning:
        try:
            _shipper({})(io.BytesIO()).dump(part)
        finally:
            spawning.close()
