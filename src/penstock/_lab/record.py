"""What a trial has shown: plain frozen values that rules read, and that tests can write down.

    Trial ─┬─ loaders     LoaderSeen ── DatasetSeen, Thing (what hangs on dataset, collate, init function)
           ├─ iterators   IteratorSeen: one pass over a loader, with waits and batches
           ├─ samples     SampleSeen: one call of the dataset, in whichever process
           ├─ failures    Failure: an exception, with sample and line
           ├─ deaths      Death: a process that ended badly
           ├─ looks       ProcessLook: stacks and kernel waits, taken before a stuck patient was ended
           └─ vitals      Vitals: memory, descriptors, processes over time

Times in seconds since the trial began, sizes in bytes. Everything has a default, so that a test names only
what it is about. `as_json` and `from_json` carry a trial to disk and back.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from dataclasses import dataclass, field
from typing import Any

from penstock._lab.plan import Plan
from penstock._lab.site import Site as Site  # noqa: PLC0414 - its readers look for it here


@dataclass(frozen=True, slots=True)
class Thing:
    """Something reachable from what workers get, that matters: found by walking attributes.

    `kind`: lambda, local-function, local-class, main-class, open-file, mapping (mmap), socket, lock, mp-lock,
    thread, generator, rng (numpy Generator, RandomState, random.Random), torch-generator, cuda-tensor,
    database, archive (zip, tar, npz), hdf5, lmdb, module, thread-local, client (boto3, s3fs, grpc …),
    large-list (list or dict of many Python objects), cache (dict or lru_cache that grew while samples were
    loaded), tokenizer, other.
    """

    path: str  # "dataset.transform.fn"
    kind: str
    type: str
    pickles: bool | None = None  # None: not tried
    error: str = ""  # what pickle said
    count: int = 0  # elements of a large list, or of a cache
    nbytes: int = 0
    detail: str = ""  # file name and offset, name of the local function, "held" of a lock at iter() …
    site: Site | None = None
    mode: str = ""  # of a file: "rb"
    # Whether the offset that all processes share moved while workers loaded samples (/proc/self/fdinfo in the
    # consumer, at iter() and after some batches); None: no such offset, or not looked at.
    offset_moved: bool | None = None


@dataclass(frozen=True, slots=True)
class DatasetSeen:
    """The dataset of a loader."""

    type: str = ""
    module: str = ""
    site: Site | None = None  # its class; of one of torch's that wraps the user's own, that one
    length: int | None = None
    is_iterable: bool = False
    nbytes: int | None = None  # of its pickle, where that was tried
    sizes: dict[str, int] = field(default_factory=dict)  # by path: length of each list, array, frame on it
    reach: int | None = None  # first index past the end that raises, where that was probed (num_workers=0)
    part: str = ""  # type of the user's own dataset within one of torch's, which was probed in its place
    part_length: int | None = None
    past: tuple[str, ...] = ()  # digests of the first samples from index len() on, where there are any
    mutated: tuple[str, ...] = ()  # paths of arrays that passes over it (num_workers=0) have changed
    drifts: bool = False  # then also: the same sample, with the same seeds, has another content the next time


@dataclass(frozen=True, slots=True)
class LoaderSeen:
    """A loader that the program made."""

    key: str  # "train.py:31#0": where it was made, and the how manieth there
    site: Site | None = None
    name: str = ""  # of the variable, where the source tells
    settings: dict[str, Any] = field(default_factory=dict)  # every option, as in force
    explicit: tuple[str, ...] = ()  # options that the program passed itself
    start_method: str = "fork"
    dataset: DatasetSeen = field(default_factory=DatasetSeen)
    things: tuple[Thing, ...] = ()
    length: int | None = None  # len(loader)
    pid: int = 0
    rank: int | None = None
    sharing_strategy: str = ""  # of torch.multiprocessing: "file_descriptor", "file_system"
    is_beforehand: bool = False  # made before any loader of that process was iterated


@dataclass(frozen=True, slots=True)
class IteratorSeen:
    """One pass over a loader: from iter() to its end."""

    loader: str
    number: int = 0  # of this loader's passes
    pid: int = 0
    began_s: float = 0.0
    start_s: float = 0.0  # how long iter() took
    first_s: float | None = None  # from iter() to the first batch
    batches: int = 0
    waits: tuple[float, ...] = ()  # in next(), one per batch
    steps: tuple[float, ...] = ()  # between batches, in the program's own loop
    end: str = "open"  # "exhausted", "dropped", "raised", "open" (when the trial ended)
    ended_s: float | None = None
    shutdown_s: float | None = None
    workers: tuple[int, ...] = ()  # pids, by worker number
    threads: tuple[str, ...] = ()  # other Python threads of the consumer at iter()
    native_threads: int = 0  # all threads of the consumer at iter(), its own included
    tensors_per_batch: int = 0
    batch_nbytes: int = 0
    pickled_nbytes: int = 0  # of what is no tensor in a batch
    kept: int = 0  # earlier batches that the program still held when the last one came
    waiting_since_s: float | None = None  # when it began to wait for a batch that never came
    live_iterators: int = 0  # of any loader in that process, alive when this one began
    changed: dict[str, str] = field(default_factory=dict)  # "dataset.epoch": "0 → 1", since the first pass
    used: tuple[str, ...] = ()  # of these, what the code that makes samples mentions
    workers_changed: dict[str, str] | None = None  # the same in every worker's copy; None: none has told
    samples: int = 0  # in its batches, as far as their sizes tell


@dataclass(frozen=True, slots=True)
class SampleSeen:
    """One sample as the dataset gave it."""

    loader: str
    iterator: int = 0
    worker: int = -1  # -1: in the consumer, num_workers=0
    pid: int = 0
    index: Any = None  # what __getitem__ got; for an iterable dataset its number in that worker
    seconds: float = 0.0
    cpu_s: float = 0.0
    digest: str = ""
    nbytes: int = 0
    storage_nbytes: int = 0  # what its tensors would ship: whole storages
    tensors: int = 0
    objects: int = 0  # Python objects other than tensors and arrays
    is_none: bool = False
    shape: str = ""  # "f32[3,224,224]", "dict(a=i64[7])": its form, for comparison
    parts: tuple[str, ...] = ()  # digests of its first fields, where it has several


@dataclass(frozen=True, slots=True)
class FetchSeen:
    """One batch as a worker (or the consumer) made it."""

    loader: str
    iterator: int = 0
    worker: int = -1
    pid: int = 0
    indices: tuple[Any, ...] = ()
    began_s: float = 0.0
    samples_s: float = 0.0  # in the dataset
    collate_s: float = 0.0
    cpu_s: float = 0.0
    queued_s: float = 0.0  # ready to run, but other threads had the CPUs
    read_nbytes: int = 0
    threads: int = 1  # of the process, afterwards
    rss: int = 0
    uss: int = 0  # 0 where it was not read
    rngs: dict[str, str] = field(default_factory=dict)  # by path: digest of each RNG object's state before;
    # the global ones are "random", "numpy.random" and "torch"
    caches: dict[str, int] = field(default_factory=dict)  # by path: elements of each container that grows
    nbytes: int = 0  # of tensors in the batch
    storage_nbytes: int = 0  # what they would ship: whole storages, but for those that are shared already
    tensors: int = 0
    made: int = 0  # samples that this process has made in this pass so far, those that nobody told of too


@dataclass(frozen=True, slots=True)
class Beyond:
    """A dataset, perhaps within another, that was asked for a sample below its length and has none there."""

    type: str
    length: int  # as it says itself
    held: str  # the attribute that it reads by that index
    size: int  # how many that holds


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception that came out of the dataset, the loader or the program."""

    type: str
    text: str = ""
    traceback: str = ""
    phase: str = ""  # "sample", "collate", "init", "start", "pickle", "feeder", "next", "length", "program"
    loader: str | None = None
    iterator: int = 0
    worker: int | None = None  # None: the consumer
    pid: int = 0
    index: Any = None
    field: str = ""  # of the sample, where collate failed
    site: Site | None = None  # innermost line of the user's own code
    at_s: float = 0.0
    is_fatal: bool = False  # it ended the program
    note: str = ""  # which sample of the batch does not fit, in a sentence, where collate failed
    maps: int = 0  # memory maps of the process, where it could get no more
    beyond: Beyond | None = None  # of an IndexError


@dataclass(frozen=True, slots=True)
class Death:
    """A process of the patient that ended by a signal or with a status that is not zero, or too early."""

    pid: int
    worker: int | None = None  # None: not a worker of a loader
    loader: str | None = None
    status: int | None = None  # as Python says it: negative for a signal; None when nobody could tell
    index: Any = None  # of the sample that it was at
    stack: str = ""
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of a stack."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class ThreadLook:
    """One thread of a process; frames innermost first."""

    tid: int
    name: str = ""
    frames: tuple[Frame, ...] = ()
    wchan: str = ""
    syscall: str = ""
    state: str = ""
    cpu_moved: bool = False  # in the window before the look
    switches_moved: bool = False


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """A process as it was found."""

    pid: int
    parent: int = 0
    role: str = "other"  # "main", "worker", "rank", "other"
    worker: int | None = None
    loader: str | None = None
    index: Any = None  # of the sample in hand
    threads: tuple[ThreadLook, ...] = ()
    cpu_moved: bool = False
    read_moved: bool = False
    fds: int = 0
    uss: int = 0  # memory of its own, where memory ran out

    @property
    def main(self) -> ThreadLook | None:
        """Its main thread."""
        return next((thread for thread in self.threads if thread.tid == self.pid), None)


@dataclass(frozen=True, slots=True)
class Vitals:
    """The patient's processes at one moment."""

    at_s: float
    processes: int = 0
    main_rss: int = 0
    main_fds: int = 0
    main_maps: int = 0
    tree_pss: int = 0
    workers_uss: int = 0
    worker_fds: int = 0  # most of any worker
    shm_used: int = 0  # of /dev/shm, more than when the trial began
    batches: int = 0  # delivered so far
    cpu_s: float = 0.0  # CPU time of the whole tree so far
    worker_waits: tuple[str, ...] = ()  # where each worker's main thread waits (wchan); "" when it runs


@dataclass(frozen=True, slots=True)
class HostSeen:
    """The machine and the limits under which the trial ran."""

    cpus: float = 1.0  # affinity and quota
    cores_seen: int = 1  # what os.cpu_count() and torch believe
    memory_limit: int = 0  # of the cgroup or the machine
    shm_size: int = 0
    shm_free: int = 0
    nofile: int = 0
    tmpdir_length: int = 0
    max_map_count: int = 0
    oom_kills: int = 0  # during the trial
    shm_stale: tuple[str, ...] = ()  # names in /dev/shm, before the trial, whose maker is dead
    shm_stale_nbytes: int = 0
    python: str = ""
    torch: str = ""
    default_start_method: str = ""
    has_cuda: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """One bounded run and what it showed."""

    plan: Plan = field(default_factory=Plan)
    outcome: str = "ok"  # "ok", "error", "hang", "crash", "oom"
    ended_by: str = "itself"  # "itself", "enough", "time", "stall", "memory", "output", "processes", "stop"
    status: int | None = None  # exit status of the program, negative for a signal
    is_abrupt: bool = False  # it ended without the end that Python gives a program, as by `os._exit`
    seconds: float = 0.0
    host: HostSeen = field(default_factory=HostSeen)
    loaders: tuple[LoaderSeen, ...] = ()
    iterators: tuple[IteratorSeen, ...] = ()
    samples: tuple[SampleSeen, ...] = ()
    fetches: tuple[FetchSeen, ...] = ()
    failures: tuple[Failure, ...] = ()
    deaths: tuple[Death, ...] = ()
    looks: tuple[ProcessLook, ...] = ()
    vitals: tuple[Vitals, ...] = ()
    warnings: tuple[str, ...] = ()
    stdout: str = ""  # the end of it
    stderr: str = ""
    left_processes: int = 0  # still there when the program itself had ended
    left_workers: int = 0  # of these, workers of torch's loader that did not end on their own
    outlived_workers: int = 0  # workers that lived on, while it ran, after the process that they work for
    left_shm: tuple[str, ...] = ()  # names in /dev/shm that it left behind
    orphaned_shm: tuple[str, ...] = ()  # of its dead processes, that nobody held, at most while it ran
    orphaned_by: int = 0  # so many processes had made them
    orphaned_nbytes: int = 0  # the most that such names took before anything had failed
    impossible: str = ""  # a change of the plan that could not be made here, and why; it ran without
    still_s: float = 0.0  # at its end nothing had moved for so long
    judgement: str = ""  # of a stall: "lost-batch", "lock", "ranks", "io", "sleep", "native", "shutdown"

    def of(self, key: str) -> tuple[IteratorSeen, ...]:
        """The passes over one loader, in order."""
        return tuple(seen for seen in self.iterators if seen.loader == key)

    def loader(self, key: str) -> LoaderSeen | None:
        """The loader of that key."""
        return next((seen for seen in self.loaders if seen.key == key), None)


def as_json(value: Any) -> Any:
    """A record as plain JSON values."""
    return dataclasses.asdict(value)


def from_json(cls: type, value: Any) -> Any:
    """A record from what `as_json` gave."""
    return _build(cls, value)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)  # slow: it compiles every annotation


def _build(kind: Any, value: Any) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in {types.UnionType, typing.Union}:
        if value is None:
            return None
        return _build(next(arg for arg in args if arg is not type(None)), value)
    if origin is tuple:
        return tuple(_build(args[0], each) for each in value)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _build(hints[name], each) for name, each in value.items() if name in hints})
    return value
