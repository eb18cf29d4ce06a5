"""The contenders: each gives an iterator of batches over the same work.

A peer is opened with a work and a number of workers and yields batches until it is closed.
Optional packages are imported when a peer is opened; one that is missing is named in the
tables as not installed. Each is used as its documentation recommends for throughput in order;
where a project offers threads and processes, both run.

`raw` is the physical limit: the same samples and the same collate in a bare loop, forked over as
many processes as there are workers, sending nothing anywhere, with memory kept by malloc.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib.util
import itertools
import os
import pickle
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, default_collate

from bench.work import PERIOD, Work, cache_folder

Batches = contextlib.AbstractContextManager[Iterator[Any]]

IMAGE_WORKS = ("float32", "float32-read", "uint8", "jpeg")


@dataclass(frozen=True, slots=True)
class Peer:
    """One contender."""

    name: str
    what: str
    open: Callable[[Work, int], Batches]
    module: str | None = None  # what has to be installed
    keeps_order: bool = True
    is_drop_in: bool = False  # yields the same containers as torch's loader
    delivers: bool = True
    works: tuple[str, ...] | None = None  # None: all of them
    close_works: tuple[str, ...] = ()  # works on which its content is only close to torch's
    store: Callable[[Work], Any] | None = None  # writes its shards, outside of any timing

    @property
    def is_installed(self) -> bool:
        if self.module is None:
            return True
        try:
            return importlib.util.find_spec(self.module) is not None
        except ModuleNotFoundError:
            return False

    def can(self, work: Work) -> bool:
        return self.works is None or work.name in self.works

    def is_close_for(self, work: Work) -> bool:
        return work.name in self.close_works

    def prepare(self, work: Work) -> None:
        if self.store is not None:
            self.store(work)


class Epoch:
    """Iterate over a loader, and forget its iterator when closed."""

    def __init__(self, loader: Any, repeat: bool = False) -> None:
        self.loader = loader
        self.repeat = repeat
        self.iterator = iter(loader)

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> Any:
        try:
            return next(self.iterator)
        except StopIteration:
            if not self.repeat:
                raise
            self.iterator = iter(self.loader)
            return next(self.iterator)

    def __enter__(self) -> Epoch:
        return self

    def __exit__(self, *exc: object) -> None:
        # What a `break` in a training loop does: the last references go.
        self.iterator = None
        self.loader = None
        gc.collect()  # some of them hold themselves in cycles


def open_torch(work: Work, workers: int) -> Batches:
    loader = DataLoader(work.dataset(), work.batch_size, num_workers=workers, collate_fn=work.collate)
    return Epoch(loader)


def open_torch_inline(work: Work, workers: int) -> Batches:
    return open_torch(work, 0)


def open_penstock(work: Work, workers: int, **options: Any) -> Batches:
    from penstock import DataLoader as PenstockLoader

    loader = PenstockLoader(
        work.dataset(),
        work.batch_size,
        num_workers=workers,
        collate_fn=work.collate,
        **options,
    )
    return Epoch(loader)


def open_stateful(work: Work, workers: int) -> Batches:
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = StatefulDataLoader(work.dataset(), work.batch_size, num_workers=workers, collate_fn=work.collate)
    return Epoch(loader)


class Fetch:
    """Turn a batch number into a batch; picklable for those that send it to processes."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.dataset = work.dataset()

    def __call__(self, number: int) -> Any:
        return self.work.fetch(self.dataset, number)


def open_nodes(work: Work, workers: int, method: str) -> Batches:
    from torchdata import nodes

    fetch = Fetch(work)
    numbers = nodes.IterableWrapper(range(len(fetch.dataset) // work.batch_size))
    mapped = nodes.ParallelMapper(numbers, fetch, num_workers=workers, method=method)
    # As many batches ahead as torch's default prefetch_factor of 2 gives.
    root = nodes.Prefetcher(mapped, prefetch_factor=2 * workers)
    return Epoch(nodes.Loader(root))


@contextlib.contextmanager
def open_spdl(work: Work, workers: int) -> Iterator[Iterator[Any]]:
    pipeline = _spdl_pipeline(work, workers)
    with pipeline.auto_stop():
        yield pipeline.get_iterator(timeout=60)


def _spdl_pipeline(work: Work, workers: int) -> Any:
    from spdl.pipeline import PipelineBuilder

    return (
        PipelineBuilder()
        .add_source(itertools.count())
        .pipe(Fetch(work), concurrency=workers, output_order="input")
        .add_sink(2 * workers)
        .build(num_threads=workers)
    )


def _spdl_iterate(work: Work, workers: int) -> Iterator[Any]:
    pipeline = _spdl_pipeline(work, workers)
    with pipeline.auto_stop():
        yield from pipeline.get_iterator(timeout=60)


@contextlib.contextmanager
def open_spdl_arena(work: Work, workers: int) -> Iterator[Iterator[Any]]:
    from spdl.pipeline import SharedMemorySegmentPool, iterate_in_subprocess

    nbytes = _nbytes(work.fetch(work.dataset(), 0))
    # Batches of one work differ in padding: twice the first one holds any.
    # Eight more than are in flight: it waits for ever once the consumer holds all of them.
    pool = SharedMemorySegmentPool(segment_size=2 * nbytes + (1 << 20), count=2 * workers + 8)
    loader = iterate_in_subprocess(
        functools.partial(_spdl_iterate, work, workers), arena=pool, buffer_size=2 * workers
    )
    epoch = Epoch(loader)
    del loader
    with epoch:
        yield epoch


def _nbytes(batch: Any) -> int:
    if isinstance(batch, torch.Tensor):
        return batch.nbytes
    values = batch.values() if isinstance(batch, dict) else batch
    return sum(_nbytes(value) if isinstance(value, torch.Tensor) else 1000 for value in values)


@contextlib.contextmanager
def open_spdl_process(work: Work, workers: int) -> Iterator[Iterator[Any]]:
    from spdl.dataloader import get_pytorch_dataloader

    loader = get_pytorch_dataloader(
        work.dataset(),
        work.batch_size,
        num_workers=workers,
        collate_fn=work.collate,
        in_order=True,
        multiprocessing_context="forkserver",
    )
    iterator = iter(loader)
    yield iterator
    iterator.close()


class GrainSource:
    """Samples as numpy arrays: what Grain carries through shared memory."""

    def __init__(self, work: Work) -> None:
        self.dataset = work.dataset()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return _to_numpy(self.dataset[index])


class GrainCollate:
    """The work's own collate function, between arrays and arrays."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, samples: Any) -> Any:
        return _to_numpy(self.collate([_to_torch(sample) for sample in samples]))


def _to_numpy(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return tree.numpy()
    if isinstance(tree, dict):
        return {key: _to_numpy(value) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_to_numpy(value) for value in tree)
    return tree


def _to_torch(tree: Any) -> Any:
    if isinstance(tree, np.ndarray):
        return torch.from_numpy(tree)
    if isinstance(tree, dict):
        return {key: _to_torch(value) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_to_torch(value) for value in tree)
    return tree


@contextlib.contextmanager
def open_grain(work: Work, workers: int) -> Iterator[Iterator[Any]]:
    import grain
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["bench"])
    batch_fn = None if work.collate is None else GrainCollate(work.collate)
    dataset = (
        grain.MapDataset.source(GrainSource(work))
        .batch(work.batch_size, batch_fn=batch_fn)
        # No threads inside of the workers: Grain's advice for samples that are in memory.
        .to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
        .mp_prefetch(grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=2))
    )
    iterator = iter(dataset)
    yield map(_to_torch, iterator)
    iterator.close()


def _shards(work: Work, kind: str, write: Callable[[Path, Any], None]) -> Path:
    """Return the folder with one period of a work in a peer's own format, written once."""
    folder = cache_folder() / f"{kind}-{work.dataset.__name__}-{work.batch_size}"
    if not folder.exists():
        beside = Path(tempfile.mkdtemp(dir=cache_folder()))
        write(beside, work.dataset())
        try:
            beside.rename(folder)
        except OSError:
            shutil.rmtree(beside)
    return folder


def _write_tars(folder: Path, dataset: Any) -> None:
    import webdataset

    for shard in range(4):
        with webdataset.TarWriter(str(folder / f"{shard}.tar")) as tar:
            for index in range(shard * PERIOD // 4, (shard + 1) * PERIOD // 4):
                content = pickle.dumps(dataset.raw(index), protocol=5)
                tar.write({"__key__": f"{index:06d}", "raw": content})


def _webdataset_shards(work: Work) -> Path:
    return _shards(work, "webdataset-1", _write_tars)


class Finish:
    """Turn a stored record into a sample."""

    def __init__(self, work: Work) -> None:
        self.dataset = work.dataset()

    def __call__(self, record: bytes) -> Any:
        return self.dataset.finish(pickle.loads(record))


class FinishBatch:
    """Turn stored records into a batch."""

    def __init__(self, work: Work) -> None:
        self.finish = Finish(work)
        self.collate = work.collate or default_collate

    def __call__(self, records: list[dict[str, Any]]) -> Any:
        return self.collate([self.finish(record["raw"]) for record in records])


def open_webdataset(work: Work, workers: int) -> Batches:
    import webdataset

    urls = sorted(map(str, _webdataset_shards(work).glob("*.tar")))
    dataset = (
        webdataset.WebDataset(urls, shardshuffle=False)
        .repeat()
        .batched(work.batch_size, collation_fn=FinishBatch(work))
    )
    return Epoch(webdataset.WebLoader(dataset, batch_size=None, num_workers=workers))


def _write_chunks(folder: Path, dataset: Any) -> None:
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(folder), chunk_size=PERIOD // 16)
    for index in range(PERIOD):
        writer[index] = pickle.dumps(dataset.raw(index), protocol=5)
    writer.done()
    writer.merge(1)


def _litdata_shards(work: Work) -> Path:
    return _shards(work, "litdata-1", _write_chunks)


def open_litdata(work: Work, workers: int) -> Batches:
    from litdata import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(str(_litdata_shards(work)), transform=Finish(work))
    loader = StreamingDataLoader(
        dataset,
        batch_size=work.batch_size,
        num_workers=workers,
        collate_fn=work.collate,
        persistent_workers=True,
    )
    # It has no endless epoch: the gap between epochs is part of its time.
    return Epoch(loader, repeat=True)


@contextlib.contextmanager
def open_dali(work: Work, workers: int) -> Iterator[Iterator[Any]]:
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import feed_ndarray

    dataset = work.dataset()
    if work.name == "jpeg":
        dataset.files = [np.frombuffer(file, np.uint8) for file in dataset.files]

    def sample(info: Any) -> np.ndarray:
        return dataset.raw(info.idx_in_epoch)

    @pipeline_def(
        batch_size=work.batch_size,
        num_threads=workers,
        device_id=None,
        prefetch_queue_depth=2 * workers,
    )
    def define() -> Any:
        images = fn.external_source(sample, batch=False, dtype=types.UINT8)
        if work.name == "jpeg":
            images = fn.decoders.image(images, output_type=types.RGB)
            images = fn.crop(images, crop=(224, 224))
            images = fn.transpose(images, perm=[2, 0, 1])
        return images if work.name == "uint8" else fn.cast(images, dtype=types.FLOAT) / 255.0

    pipeline = define()
    pipeline.build()
    dtype = torch.uint8 if work.name == "uint8" else torch.float32

    def batches() -> Iterator[torch.Tensor]:
        while True:
            (images,) = pipeline.run()
            # Its outputs live until the next run only: copied, as its own torch iterator does.
            tensor = images.as_tensor()
            batch = torch.empty(tensor.shape(), dtype=dtype)
            feed_ndarray(tensor, batch)
            yield batch

    yield batches()


# mallopt(3): no mmap per large block, no trimming, so that freed memory is used again.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


@contextlib.contextmanager
def open_raw(work: Work, workers: int) -> Iterator[Iterator[None]]:
    fetch = Fetch(work)
    done, tell = os.pipe()
    pids = []
    for first in range(workers):
        pid = os.fork()
        if pid == 0:
            os.close(done)
            _raw_loop(fetch, range(first, 1 << 40, workers), tell)
        pids.append(pid)
    os.close(tell)

    def count() -> Iterator[None]:
        while os.read(done, 1):
            yield None

    yield count()
    os.close(done)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _raw_loop(fetch: Fetch, numbers: range, tell: int) -> None:
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    libc.mallopt(M_TOP_PAD, 1 << 26)
    torch.set_num_threads(1)
    try:
        for number in numbers:
            fetch.work.consume(fetch(number))
            os.write(tell, b".")
    finally:
        os._exit(0)


PEERS = {
    peer.name: peer
    for peer in (
        Peer("torch", "stock DataLoader", open_torch, is_drop_in=True),
        Peer("torch-0", "stock, num_workers=0", open_torch_inline, is_drop_in=True),
        Peer("penstock", "ours", open_penstock, "penstock", is_drop_in=True),
        Peer(
            "penstock-auto",
            'ours, backend="auto"',
            functools.partial(open_penstock, backend="auto"),
            "penstock",
            is_drop_in=True,
        ),
        Peer(
            "penstock-thread",
            'ours, backend="thread"',
            functools.partial(open_penstock, backend="thread"),
            "penstock",
            is_drop_in=True,
        ),
        Peer("raw", "bare loop, nothing sent", open_raw, delivers=False),
        Peer("spdl", "SPDL pipeline, threads", open_spdl, "spdl", is_drop_in=True),
        Peer("spdl-arena", "SPDL in a subprocess, arena", open_spdl_arena, "spdl"),
        Peer("spdl-process", "SPDL's torch-like loader", open_spdl_process, "spdl"),
        Peer("grain", "Grain mp_prefetch", open_grain, "grain"),
        Peer("stateful", "torchdata StatefulDataLoader", open_stateful, "torchdata"),
        Peer(
            "nodes-thread",
            "torchdata.nodes, threads",
            functools.partial(open_nodes, method="thread"),
            "torchdata",
        ),
        Peer(
            "nodes-process",
            "torchdata.nodes, processes",
            functools.partial(open_nodes, method="process"),
            "torchdata",
        ),
        Peer(
            "litdata",
            "LitData, chunks on disk",
            open_litdata,
            "litdata",
            keeps_order=False,
            store=_litdata_shards,
        ),
        Peer(
            "webdataset",
            "WebDataset, tar shards",
            open_webdataset,
            "webdataset",
            keeps_order=False,
            store=_webdataset_shards,
        ),
        Peer(
            "dali",
            "DALI on the CPU",
            open_dali,
            "nvidia.dali",
            works=IMAGE_WORKS,
            close_works=("jpeg",),
        ),
    )
}
