"""What a stuck program waits for, from the stacks and kernel waits that were taken before it was ended.

| signature | consumer | workers | meaning |
|---|---|---|---|
| lost-batch (H1) | waits for a batch | all idle, none dead | a feeder thread failed to serialise a batch and dropped it |
| lock (H2) | waits for a batch | one in the user's code, in a futex, not moving | a lock or thread pool dead since the fork |
| read (H3) | waits for a batch | one in a socket, pipe, file lock or child | input or output without a time-out |
| slow (H4) | waits for a batch | one in the user's code, still moving | slow, not hung |
| other-rank (H5) | in a collective | | another rank stopped |
| elsewhere | anywhere else | | not the loader's doing |

With num_workers=0 the consumer itself loads samples; it is then judged like a worker. Pure.
"""

# ruff: noqa: E501 - the table reads better whole

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from penstock._clinic.facts import Facts
from penstock._clinic.failures import innermost, is_users, method_of, workers_of
from penstock._clinic.source import Source
from penstock._lab.record import Frame, IteratorSeen, LoaderSeen, ProcessLook, Site, Thing, ThreadLook, Trial
from penstock._lab.stall import in_collective

Signature = Literal["lost-batch", "lock", "read", "slow", "other-rank", "elsewhere"]
Wait = Literal["futex", "socket", "pipe", "file-lock", "child", "poll", "sleep", "file", "running", "unknown"]

# Kernel functions by what they wait for; a prefix is enough, their suffixes change between kernels.
_CHANNELS: tuple[tuple[str, Wait], ...] = (
    ("futex", "futex"),
    ("wait_woken", "socket"),
    ("sk_", "socket"),
    ("inet_", "socket"),
    ("tcp_", "socket"),
    ("unix_", "socket"),
    ("skb_", "socket"),
    ("__skb", "socket"),
    ("anon_pipe", "pipe"),
    ("pipe_", "pipe"),
    ("wait_for_partner", "pipe"),
    ("fifo_open", "pipe"),
    ("locks_lock", "file-lock"),
    ("flock_lock", "file-lock"),
    ("posix_lock", "file-lock"),
    ("fcntl_setlk", "file-lock"),
    ("do_wait", "child"),
    ("kernel_wait", "child"),
    ("wait4", "child"),
    ("hrtimer_nanosleep", "sleep"),
    ("do_nanosleep", "sleep"),
    ("poll_schedule", "poll"),
    ("do_poll", "poll"),
    ("do_sys_poll", "poll"),
    ("do_select", "poll"),
    ("ep_poll", "poll"),
    ("folio_wait", "file"),
    ("wait_on_page", "file"),
    ("io_schedule", "file"),
    ("rpc_", "file"),
    ("nfs", "file"),
    ("fuse", "file"),
    ("request_wait_answer", "file"),
)

# System calls of x86-64 by number, for kernels that hide the channel. Reads may be of anything.
_CALLS: dict[str, Wait] = {
    "202": "futex",
    "42": "socket",
    "43": "socket",
    "45": "socket",
    "47": "socket",
    "288": "socket",
    "61": "child",
    "247": "child",
    "73": "file-lock",
    "35": "sleep",
    "230": "sleep",
    "7": "poll",
    "23": "poll",
    "232": "poll",
    "270": "poll",
    "271": "poll",
    "281": "poll",
}

# Python functions that say what is waited for, where the kernel does not.
_FUNCTIONS: tuple[tuple[str, str, Wait], ...] = (
    ("socket.py", "", "socket"),
    ("ssl.py", "", "socket"),
    ("http/client.py", "", "socket"),
    ("subprocess.py", "", "child"),
    ("threading.py", "", "futex"),
    ("queue.py", "", "futex"),
)

# Threads that every worker of torch has, and that set no lock free.
_HOUSEKEEPING = frozenset({"_feed", "_serve", "serve_forever", "_pin_memory_loop"})

# Libraries whose connections, loops and channels belong to the process that made them.
CLIENTS = (
    "fsspec",
    "s3fs",
    "gcsfs",
    "adlfs",
    "aiohttp",
    "aiobotocore",
    "botocore",
    "boto3",
    "grpc",
    "google/cloud",
    "google.cloud",
    "requests",
    "urllib3",
    "httpx",
    "pymongo",
    "redis",
    "psycopg",
    "pymysql",
    "minio",
    "asyncio",
)

# Names that people give to clients of their own making.
_CLIENT_NAMES = re.compile(
    r"client|session|connection|channel|stub|remote|rpc|bucket|asyn|event_?loop|\bloop\b|store\b|fetcher|api\b"
    r"|service|gateway|redis|mongo|http|sdk|server|broker|proxy",
    re.IGNORECASE,
)

# A pool is a pool, unless these say otherwise.
_CLIENT_OF_POOL = re.compile(r"client|session|\brpc|stub|asyn|event_?loop", re.IGNORECASE)
_ABOVE = 8  # lines

_LIBRARIES = (
    "torch/",
    "torchvision",
    "cv2",
    "numpy",
    "scipy",
    "sklearn",
    "tokenizers",
    "PIL/",
    "numba",
    "av/",
)
# A line in which the interpreter itself waits: `with lock:` or `lock.acquire()`. What torch has for `with` is
# written in Python and would show a frame of its own.
_HELD = re.compile(
    r"\bwith\s+(?!torch\b)(?P<name>[^\s:(][^:]*?)\s*(?:\bas\b|:)|(?P<call>\w[\w.\[\]'\"%]*)\.acquire\("
)


@dataclass(frozen=True, slots=True)
class Stuck:
    """One process that does not move."""

    look: ProcessLook
    wait: Wait
    frame: Frame | None = None  # innermost line of the user's own code
    inner: Frame | None = None  # innermost line at all
    frames: tuple[Frame, ...] = ()  # from the innermost out to the loader's fetcher
    is_dead: bool = False  # nobody is left who could end this wait

    @property
    def worker(self) -> int | None:
        """Its number; None for the consumer."""
        return self.look.worker if self.look.role == "worker" else None

    @property
    def index(self) -> Any:
        """The sample in hand."""
        return self.look.index

    @property
    def site(self) -> Site | None:
        """Where it waits, in the user's own code."""
        return Site(self.frame.file, self.frame.line, self.frame.function) if self.frame else None

    @property
    def named(self) -> str:
        """In a sentence: "worker 1", or "the program" where there are no workers."""
        return "the program" if self.worker is None else f"worker {self.worker}"


@dataclass(frozen=True, slots=True)
class Hang:
    """A stuck program."""

    signature: Signature
    trial: Trial
    loader: str | None = None
    stuck: tuple[Stuck, ...] = ()  # the guilty ones, most telling first
    iterator: IteratorSeen | None = None  # the pass that waits

    @property
    def first(self) -> Stuck | None:
        """The process that tells most."""
        return self.stuck[0] if self.stuck else None

    def loader_in(self, facts: Facts) -> LoaderSeen | None:
        """The loader that hangs, with its settings."""
        key = self.loader or ""
        return self.trial.loader(key) or (facts.observed.loader(key) if facts.observed else None)

    @property
    def since_s(self) -> float:
        """When it stopped."""
        if self.iterator is not None and self.iterator.waiting_since_s is not None:
            return self.iterator.waiting_since_s
        return self.trial.seconds

    @property
    def waited_s(self) -> float:
        """How long it had waited when it was ended."""
        return max(self.trial.seconds - self.since_s, 0.0)


def judge(trial: Trial) -> Hang | None:
    """What a trial hangs in; None where it does not hang or nobody looked."""
    if trial.outcome != "hang" or not trial.looks:
        return None
    waiting = _waiting_pass(trial)
    workers = [look for look in trial.looks if look.role == "worker"]
    busy = tuple(_stuck(look) for look in workers if not is_idle(look))
    consumers = [look for look in trial.looks if look.role in {"main", "rank"}]
    inline = tuple(_stuck(look) for look in consumers if _is_loading(look))
    return _hang(trial, waiting, busy or inline, consumers)


def _hang(
    trial: Trial, waiting: IteratorSeen | None, busy: tuple[Stuck, ...], consumers: list[ProcessLook]
) -> Hang:
    key = next((each.look.loader for each in busy if each.look.loader), None) or (
        waiting.loader if waiting else None
    )
    if busy:
        still = tuple(each for each in busy if not _moves(each))
        signature: Signature = "slow" if not still else "lock" if _is_lock(still[0]) else "read"
        return Hang(signature, trial, key, _ranked(still or busy), waiting)
    if any(in_collective(look) for look in consumers):
        return Hang("other-rank", trial, key, (), waiting)
    is_unread = all(look.main is None or not look.main.frames for look in consumers)
    if any(_awaits_batch(look) for look in consumers) or (waiting is not None and is_unread):
        return Hang("lost-batch", trial, key, (), waiting)
    return Hang("elsewhere", trial, key, (), waiting)


def _is_lock(stuck: Stuck) -> bool:
    return stuck.wait == "futex"


def _ranked(stuck: tuple[Stuck, ...]) -> tuple[Stuck, ...]:
    """Proven ones first, then those in the user's own code, then by number."""
    return tuple(sorted(stuck, key=lambda each: (not each.is_dead, each.frame is None, each.worker or 0)))


def _waiting_pass(trial: Trial) -> IteratorSeen | None:
    waiting = [each for each in trial.iterators if each.waiting_since_s is not None]
    opened = waiting or [each for each in trial.iterators if each.end == "open"]
    return max(opened, key=lambda each: each.began_s) if opened else None


def is_idle(look: ProcessLook) -> bool:
    """Whether a worker waits for work, as a healthy one does between batches."""
    main = look.main
    if main is None:
        return False
    if not main.frames:  # nobody could read its stack: a worker that polls waits for its index queue
        return wait_of(main) == "poll"
    outside = next(
        (n for n, frame in enumerate(main.frames) if frame.function.endswith("_worker_loop")), None
    )
    if outside is None:
        return False
    inside = main.frames[:outside]
    return all("multiprocessing/" in each.file or "selectors.py" in each.file for each in inside) and any(
        "queues.py" in each.file for each in inside
    )


def _is_loading(look: ProcessLook) -> bool:
    main = look.main
    frames = main.frames if main is not None else ()
    return any("_utils/fetch.py" in frame.file or "_utils/collate.py" in frame.file for frame in frames)


def _awaits_batch(look: ProcessLook) -> bool:
    names = ("_try_get_data", "_get_data", "_next_data")
    main = look.main
    return main is not None and any(frame.function.endswith(names) for frame in main.frames)


def _stuck(look: ProcessLook) -> Stuck:
    main = look.main
    if main is None:
        return Stuck(look, "unknown")
    within = _within(main.frames)
    site = innermost(within)
    user = next((each for each in within if site and (each.file, each.line) == (site.file, site.line)), None)
    return Stuck(look, wait_of(main), user, _first_foreign_or_own(within), within, is_dead(look))


def _within(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Frames from the innermost out to the loader: what lies further out is the same for every worker."""
    for place, frame in enumerate(frames):
        if frame.function.endswith("_worker_loop") or "_utils/fetch.py" in frame.file:
            return frames[:place]
    return frames


def _first_foreign_or_own(frames: tuple[Frame, ...]) -> Frame | None:
    return next((frame for frame in frames if "/penstock/_lab/" not in frame.file), None)


def wait_of(thread: ThreadLook) -> Wait:
    """What a thread waits for: the kernel's word first, then the system call, then the Python function."""
    for prefix, wait in _CHANNELS:
        if thread.wchan.startswith(prefix):
            return wait
    call = thread.syscall.split()[0] if thread.syscall.split() else ""
    if call in _CALLS:
        return _CALLS[call]
    for file, function, wait in _FUNCTIONS:
        if thread.frames and thread.frames[0].file.endswith(file) and function in thread.frames[0].function:
            return wait
    if call == "running" or thread.state == "R" or thread.cpu_moved:
        return "running"
    return "pipe" if call == "0" else "unknown"


def _moves(stuck: Stuck) -> bool:
    """Whether a process gets on, if slowly: it computes, or bytes come in."""
    return stuck.look.cpu_moved or stuck.look.read_moved


def is_dead(look: ProcessLook) -> bool:
    """Whether no thread is left that could end its wait for a lock.

    The main thread sleeps in a futex and was not woken once in the window, and every other thread of the
    process is one of multiprocessing's own. A thread without Python frames may be a native pool: then
    nothing is proven.
    """
    main = look.main
    if main is None or wait_of(main) != "futex" or main.switches_moved or main.cpu_moved or look.cpu_moved:
        return False
    return all(_is_housekeeping(thread) for thread in look.threads if thread is not main)


def _is_housekeeping(thread: ThreadLook) -> bool:
    return any(
        frame.function.rpartition(".")[2] in _HOUSEKEEPING or "/penstock/_lab/" in frame.file
        for frame in thread.frames
    )


def program_threads(hang: Hang) -> tuple[str, ...]:
    """Python threads that the program had beside its main one when it forked the workers, ours apart."""
    seen = hang.iterator
    if seen is not None and seen.threads:
        return seen.threads
    looks = [look for look in hang.trial.looks if look.role in {"main", "rank"}]
    threads = [
        thread for look in looks for thread in look.threads if thread is not look.main and thread.frames
    ]
    return tuple(thread.name or str(thread.tid) for thread in threads if not _is_housekeeping(thread))


Dead = Literal["lock", "pool", "client", "thread"]


def dead_thing(stuck: Stuck, source: Source | None, *, has_threads: bool, has_locks: bool) -> Dead:
    """What kind of thing a process in a futex waits for: a lock, a thread pool, a client, a lost thread.

    By the library it waits in; where it waits in the user's own line, by what that line says; where the
    line cannot be read, by what there was at the fork.
    """
    if is_client(stuck, source):
        return "client"
    by_library = _by_library(stuck)
    if by_library is not None:
        return by_library
    if lock_name(stuck, source):
        return "lock"
    is_unread = stuck_line(stuck, source) is None
    return "lock" if is_unread and (has_threads or has_locks) else "pool"


def _by_library(stuck: Stuck) -> Dead | None:
    inner = stuck.inner.file if stuck.inner else ""
    if not inner or is_users(inner):
        return None
    if _passes(stuck, ("concurrent/futures", "multiprocessing/pool.py")):
        return "pool"
    if inner.endswith("queue.py") or (inner.endswith("threading.py") and _waits_for_thread(stuck)):
        return "thread"
    return "pool" if any(name in inner for name in _LIBRARIES) else "lock"


def is_client(stuck: Stuck, source: Source | None) -> bool:
    """Whether a process waits inside a client: a library of that kind, an event loop, or one named so."""
    if any(_passes(stuck, (f"/{name}/",)) for name in CLIENTS):
        return True
    if "run_coroutine_threadsafe" in _around(stuck, source):
        return True
    is_lost = stuck.inner is not None and stuck.inner.file.endswith(("threading.py", "queue.py", "_base.py"))
    is_pool = _passes(stuck, ("concurrent/futures", "multiprocessing/pool.py"))
    names = [each.function for each in stuck.frames if is_users(each.file)]
    telling = _CLIENT_OF_POOL if is_pool else _CLIENT_NAMES
    return is_lost and any(telling.search(text) for text in (*names, stuck_line(stuck, source) or ""))


def _around(stuck: Stuck, source: Source | None) -> str:
    """The user's line with those just above it: a future is often made there."""
    for file in source.files if source is not None and stuck.frame is not None else ():
        if stuck.frame is not None and file.path == stuck.frame.file:
            return "\n".join(file.text.splitlines()[max(0, stuck.frame.line - _ABOVE) : stuck.frame.line])
    return ""


def _waits_for_thread(stuck: Stuck) -> bool:
    """In `Event.wait`, `Condition.wait`, `join`; a plain `acquire` in threading.py is a lock."""
    name = stuck.inner.function.rpartition(".")[2] if stuck.inner else ""
    return name in {"wait", "wait_for", "join", "_wait_for_tstate_lock"}


def _passes(stuck: Stuck, parts: tuple[str, ...]) -> bool:
    return any(part in frame.file for frame in stuck.frames for part in parts)


def stuck_line(stuck: Stuck, source: Source | None) -> str | None:
    """The user's own line in which a process waits; None where the source is not at hand."""
    if stuck.frame is None or source is None:
        return None
    for file in source.files:
        if file.path == stuck.frame.file:
            lines = file.text.splitlines()
            return lines[stuck.frame.line - 1].strip() if 0 < stuck.frame.line <= len(lines) else None
    return None


def lock_name(stuck: Stuck, source: Source | None) -> str | None:
    """The lock that the user's line takes: `self._lock` of `with self._lock:` or `self._lock.acquire()`."""
    match = _HELD.search(stuck_line(stuck, source) or "")
    return (match["name"] or match["call"]) if match else None


def is_held(loader: LoaderSeen | None) -> bool:
    """Whether a lock on what workers get was held when the workers were about to be started."""
    return any(thing.kind == "lock" and thing.detail == "held" for thing in (loader.things if loader else ()))


def shared_pipe(facts: Facts, hang: Hang) -> Thing | None:
    """The pipe, opened before the fork, from which several workers read what was meant for one of them."""
    stuck, loader = hang.first, hang.loader_in(facts)
    zero = facts.at(hang.loader or "", 0)
    if stuck is None or stuck.worker is None or stuck.wait != "pipe" or zero is None or zero.outcome != "ok":
        return None
    if loader is None or workers_of(hang.trial, loader) <= 1 or method_of(hang.trial, loader) != "fork":
        return None
    pipes = [thing for thing in loader.things if thing.kind == "open-file" and thing.detail.isdigit()]
    return next((thing for thing in pipes if "r" in thing.mode), None)


def hangs(facts: Facts) -> Iterator[Hang]:
    """The hangs that count: of the program as it is, else of rungs that show the same.

    A program with `timeout=` ends with an error that tells nothing; its rungs wait longer and are seen. A
    program that got through by luck (the lock was free at the fork) hangs on another rung with workers.
    """
    observed = facts.observed
    found = judge(observed) if observed is not None else None
    if found is not None:
        yield found
        return
    if observed is None or (observed.outcome != "ok" and not timed_out(observed)):
        return
    for trial in facts.ladder:
        seen = judge(trial)
        loader = observed.loader(trial.plan.loader or "")
        if seen is not None and workers_of(trial, loader) > 0 and workers_of(observed, loader) > 0:
            yield seen


def timed_out(trial: Trial) -> bool:
    """Whether the program's own `timeout=` ended it."""
    return any("DataLoader timed out after" in each.text for each in trial.failures)
