"""Every error penstock raises.

PenstockError
├── SettingsError      PS0xx  the caller passed something we can refuse at once (a ValueError)
│   └── SettingsTypeError     the same, where torch raises TypeError
├── DataError          PS5xx  a sample, a collate or a pickle failed (a RuntimeError)
│   └── ShippingError         a dataset that cannot go to a fresh process (also a TypeError)
├── WorkerLostError    PS6xx  a worker died, hung or timed out (a RuntimeError)
└── ArenaError         PS7xx  shared memory is missing, full or too small (a RuntimeError)
MistakeWarning         PS3xx  a mistake in the dataset that is certain (a UserWarning)

An exception of the user's own code keeps its own type; it only gains the worker's traceback and the
sample's index. `CODES` holds one page per code, which `penstock explain CODE` prints.
"""

from __future__ import annotations

__all__ = [
    "CODES",
    "ArenaError",
    "DataError",
    "MistakeWarning",
    "PenstockError",
    "SettingsError",
    "SettingsTypeError",
    "ShippingError",
    "WorkerLostError",
]


class PenstockError(Exception):
    """Base class: what happened, how we know, how to change it, and a code.

    Frameworks that carry exceptions between processes rebuild them from one text; given alone, it is
    the whole message.
    """

    def __init__(self, code: str, what: str = "", *, why: str = "", fix: str = "") -> None:
        super().__init__(code, what, why, fix)
        self.code, self.what, self.why, self.fix = code, what, why, fix

    def __reduce__(self) -> tuple[object, ...]:
        # `why` and `fix` are keyword-only, which pickle's default cannot replay.
        return _rebuild, (type(self), self.code, self.what, self.why, self.fix)

    def __str__(self) -> str:
        if not self.what:
            return self.code
        lines = [f"[{self.code}] {self.what}"]
        if self.why:
            lines.append(f"  why:  {self.why}")
        if self.fix:
            lines.append(f"  fix:  {self.fix}")
        lines.append(f"  more: penstock explain {self.code}")
        return "\n".join(lines)


class SettingsError(PenstockError, ValueError):
    """An option was refused before anything started. Also a ValueError, as in torch."""


class SettingsTypeError(SettingsError, TypeError):
    """An option has the wrong type. Also a TypeError, as in torch."""


class DataError(PenstockError, RuntimeError):
    """A sample or a batch could not be made or handed over."""


class ShippingError(DataError, TypeError):
    """The dataset (or what goes with it) cannot be sent to a fresh process."""


class WorkerLostError(PenstockError, RuntimeError):
    """A worker is gone or silent. Also a RuntimeError, as in torch's DataLoader."""


class ArenaError(PenstockError, RuntimeError):
    """Shared memory for batches could not be had."""


class MistakeWarning(UserWarning):
    """A mistake in the dataset that is certain: workers told of it. Given once for each loader and code."""


def _rebuild(cls: type[PenstockError], code: str, what: str, why: str, fix: str) -> PenstockError:
    return cls(code, what, why=why, fix=fix)


CODES: dict[str, tuple[str, str]] = {
    "PS001": (
        "an option has the wrong type",
        "The value has a type that this option does not take, for example `num_workers='4'` read from "
        "an environment variable. Nothing was started. Convert the value before it is passed.",
    ),
    "PS002": (
        "an option is out of range",
        "The value has the right type but is not allowed. The message gives the value, what is "
        "allowed and the nearest value that would be taken. Nothing was started.",
    ),
    "PS003": (
        "two options exclude each other",
        "Both were given, and they contradict: `sampler` decides the order, so `shuffle` cannot; "
        "`batch_sampler` decides the batches, so `batch_size`, `shuffle`, `sampler` and `drop_last` "
        "cannot; worker options need `num_workers` above 0. Leave one of the two out.",
    ),
    "PS004": (
        "the option does not fit the dataset",
        "An iterable-style dataset yields samples in its own order, so a sampler, a batch sampler or "
        "`shuffle=True` has nothing to choose from. Shuffle inside the dataset, or use a map-style "
        "one.",
    ),
    "PS005": (
        "the platform has no such backend",
        "Process workers need Linux. Elsewhere the loader falls back to torch's own workers, or with "
        "`seed` to the training process, and says so. `backend='thread'` and "
        "`backend='inline'` work on every platform.",
    ),
    "PS006": (
        "the iterator belongs to another process",
        "The process was forked while a loader was being iterated, and the child asked the inherited "
        "iterator for a batch. Workers and batches stay with the parent. Call `iter(loader)` in the "
        "child.",
    ),
    "PS007": (
        "the quarantine file cannot be used",
        "`quarantine=` names a file that cannot be opened for reading and appending, or one with a line that "
        "is no JSON object with an `index` (a number, a text or null). The message gives the line's number. "
        "Nothing was started. Repair or remove the line; an empty or missing file is fine.",
    ),
    "PS301": (
        "every worker yields the same samples",
        "Each worker iterates over its own copy of an iterable dataset. Unless `__iter__` asks "
        "`torch.utils.data.get_worker_info()` for its share, every sample comes once from each worker. The "
        "first samples of all workers were compared, and are equal. Yield this worker's share: "
        "`itertools.islice(stream, info.id, None, info.num_workers)`; or pass `cure=True`, which does so for "
        "you.",
    ),
    "PS302": (
        "workers repeat each other's random numbers",
        "A random generator in an attribute of the dataset is copied into every worker with one state, so "
        "that workers draw the same numbers, and fresh workers draw them again in the next epoch. torch "
        "seeds only the global generators of a worker. Seed this one in `worker_init_fn` from "
        "`get_worker_info().seed`, or per sample from the index; for a map-style dataset `cure=True` does "
        "the first.",
    ),
    "PS303": (
        "persistent workers do not see a changed attribute",
        "Persistent workers were given the dataset when they were started. What the program sets in its own "
        "copy later, such as `dataset.epoch = 3`, does not reach them. Keep the value in shared memory "
        "(`multiprocessing.Value`, a tensor after `share_memory_()`), or leave `persistent_workers` out; or "
        "pass `cure=True`, which sends changed values at the beginning of each epoch.",
    ),
    "PS501": (
        "a batch cannot be handed over",
        "The worker made the batch, but it holds an object that cannot be pickled (a generator, an "
        "open file, a lock, an object of a class defined inside a function). torch's loader hangs "
        "here, because it pickles in a background thread that drops the failure. Return plain data: "
        "tensors, arrays, numbers, strings and containers of them; or move the class to the top level "
        "of a module.",
    ),
    "PS502": (
        "StopIteration in a map-style dataset",
        "`__getitem__` or the collate function raised StopIteration. torch reads that as the end of "
        "the data and silently ends the epoch early. Here it is an error, as PEP 479 makes it in "
        "generators. Catch it in the dataset, often from a bare `next(...)`, and raise IndexError or "
        "ValueError.",
    ),
    "PS503": (
        "the dataset cannot be sent to a fresh process",
        "With `multiprocessing_context='spawn'` or 'forkserver' the dataset is shipped to a new "
        "interpreter. Lambdas, closures and notebook classes can go; what belongs to the operating "
        "system cannot: handles of open files, database handles, generators, running threads, CUDA "
        "tensors. The message names the attribute. Open it on first use in the worker, or in "
        "`worker_init_fn`, or drop it in `__getstate__`.",
    ),
    "PS504": (
        "the worker's answer cannot be rebuilt",
        "The batch was pickled in the worker but cannot be unpickled in the training process, usually "
        "because a class does its work in `__setstate__` or its `__reduce__` is wrong. `pickle.loads( "
        "pickle.dumps(batch))` at `num_workers=0` shows the same failure.",
    ),
    "PS505": (
        "too many bad samples",
        "The budget of the `ErrorPolicy` is spent: more bad samples in this pass than `most`, or, once "
        "`probation` samples were drawn, a larger share of them than `most_rate`. The message gives the "
        "counts and the first of them; `loader.errors` has the rest, with tracebacks. A wrong path or "
        "a lost mount is the usual cause when nearly all are bad.",
    ),
    "PS506": (
        "a sample is None",
        "`__getitem__` returned None, or an iterable dataset yielded it, and the loader has an error policy: "
        "None is a bad sample, and is treated like one that raises. Often the cause is a missing `return`. "
        "Without an error policy, None goes to the collate function, as in torch.",
    ),
    "PS507": (
        "skipping under several ranks",
        "With `on_error='skip'` a rank may deliver smaller batches than the others, and fewer when all "
        "samples of a batch are bad. Collective operations then wait for a rank that has ended. Use "
        "`on_error='replace'`, or torch's `Join`.",
    ),
    "PS508": (
        "the quarantine file cannot be written",
        "A bad sample could not be appended to the quarantine file, usually because the disk is full. It is "
        "in `loader.errors` all the same, and the run goes on.",
    ),
    "PS601": (
        "a worker died",
        "The worker's process is gone. The message gives the signal or exit status and the work it "
        "held. SIGKILL is usually the out-of-memory killer; SIGSEGV and SIGABRT are native code; an "
        "exit status means that the dataset called `sys.exit` or `os._exit`. Run that index at "
        "`num_workers=0` to see it.",
    ),
    "PS602": (
        "no batch within `timeout`",
        "`timeout=` was set, and no worker finished a batch in that time. The message names the "
        "samples that each worker has. A sample that waits for the network or a lock is the usual cause.",
    ),
    "PS603": (
        "workers cannot be started",
        "The process that workers come from did not come up, or could not fork. The message has its "
        "last words. Too little memory, a process limit (`ulimit -u`) or an import that fails are "
        "usual.",
    ),
    "PS604": (
        "a forked worker was stuck on a lock nobody holds",
        "Another thread of the training process held a lock at the moment of the fork; its copy in "
        "the worker can never be released. The kernel shows it: one thread, asleep in a private "
        "futex without a deadline. The loader forked again and, if that did not help, started fresh "
        "workers from a clean process. Pass `multiprocessing_context='forkserver'`, or create the "
        "loader before the thread.",
    ),
    "PS605": (
        "the iterator was interrupted",
        "An exception came from outside while `next` was between two states: Ctrl-C, or a signal handler "
        "that raises, such as that of an alarm. The iterator might repeat or skip a batch, so it refuses to "
        "go on. An exception that comes while `next` merely waits does no harm. "
        "Call `iter(loader)` again. To limit the wait for a batch, pass `timeout`.",
    ),
    "PS606": (
        "a worker stalled",
        "The program waits for this worker, and the worker does nothing: its CPU time, the bytes that it has "
        "read and written and its place in the batch have not changed, and it is not in a deliberate sleep. "
        "First this is a warning, after `stall_warn` seconds. After `stall_timeout` seconds without any sign "
        "of life the worker is ended, and its batch is made once more; if that stalls too, it is this error. "
        "The message has the sample, the Python stack and the function of the kernel in which the worker "
        "sleeps: a pipe or a socket that nobody writes to, a file server that is gone, a lock. A slow "
        "sample, one that computes or reads, is left alone. Pass `stall_timeout=None` to wait for ever.",
    ),
    "PS607": (
        "the place in an iterable dataset is lost",
        "A worker died, and its iterable dataset had already delivered samples of this epoch. Where it was "
        "in its stream only the worker knew, so that going on could lose samples or repeat them. Give the "
        "dataset `state_dict()` and `load_state_dict(state)`: the state then comes home with every batch (up "
        "to 64 KiB), and a fresh worker goes on from it. If the stream of a worker is the same each time it "
        "is started, `on_iterable_crash='replay'` makes it again and drops what had been delivered.",
    ),
    "PS701": (
        "no room for a batch",
        "The batch needs more shared memory than the machine or the memory cgroup has left. Batches "
        "do not use `/dev/shm`, so its size does not matter here. Lower `batch_size`, `num_workers` "
        "or `prefetch_factor`, or raise the memory limit.",
    ),
    "PS702": (
        "the system refused shared memory",
        "The operating system has no descriptor or mapping left (`ulimit -n`, `vm.max_map_count`). "
        "The loader itself needs about two descriptors per batch in flight. Raise the limit, or keep "
        "fewer files open.",
    ),
}
