"""Facts for rules about starting, forking and failing: stacks, sources, spawned workers."""

from __future__ import annotations

import ast
import dataclasses

from penstock._clinic.source import Source, SourceFile
from penstock._lab.record import DatasetSeen, Frame, ProcessLook, Site, Thing, ThreadLook
from tests.rules.seen import KEY, loader, passed, trial

FILE = "/home/me/train.py"
LIB = "/usr/lib/python3.11"
TORCH = "/usr/lib/python3.11/site-packages/torch/utils/data"
FUTEX = {"wchan": "futex_do_wait", "syscall": "202 0x55d5 0x189 0x0", "state": "S"}

FETCH = (
    Frame("fetch", f"{TORCH}/_utils/fetch.py", 54),
    Frame("_worker_loop", f"{TORCH}/_utils/worker.py", 374),
)
IDLE = (
    Frame("_poll", f"{LIB}/multiprocessing/connection.py", 440),
    Frame("get", f"{LIB}/multiprocessing/queues.py", 113),
    Frame("_worker_loop", f"{TORCH}/_utils/worker.py", 360),
)
FEED = ThreadLook(
    tid=99, name="QueueFeederThread", frames=(Frame("_feed", f"{LIB}/multiprocessing/queues.py", 231),)
)


def source(text, path=FILE):
    return Source(files=(SourceFile(path, text, ast.parse(text)),))


def frame(line, function="__getitem__", file=FILE):
    return Frame(function, file, line)


def worker(number=0, *frames, index=5, others=(FEED,), cpu_moved=False, read_moved=False, **wait):
    """A worker as it was found: in these frames of the dataset, or idle where there are none."""
    pid = 11 + number
    stack = (*frames, *FETCH) if frames else IDLE
    wait = wait or ({"wchan": "poll_schedule_timeout"} if not frames else FUTEX)
    main = ThreadLook(tid=pid, name="MainThread", frames=stack, **wait)
    return ProcessLook(
        pid=pid, parent=10, role="worker", worker=number, loader=KEY, index=index if frames else None,
        threads=(main, *others), cpu_moved=cpu_moved, read_moved=read_moved,
    )  # fmt: skip


def consumer(*frames, **wait):
    """The program: waiting for a batch where no frames are given."""
    waiting = (Frame("_try_get_data", f"{TORCH}/dataloader.py", 1291), frame(40, "main"))
    main = ThreadLook(
        tid=10, name="MainThread", frames=frames or waiting, **(wait or {"wchan": "poll_schedule_timeout"})
    )
    return ProcessLook(pid=10, role="main", threads=(main,))


def hung(*looks, seen=None, threads=(), native_threads=1, **fields):
    """A program that waits for a batch since second 3."""
    waiting = passed(
        end="open", batches=2, waiting_since_s=3.0, threads=threads, native_threads=native_threads
    )
    defaults = {"outcome": "hang", "ended_by": "stall", "seconds": 9.0, "iterators": (waiting,)}
    return trial(seen, looks=(consumer(), *looks), **{**defaults, **fields})


def spawned(*things, method="spawn", explicit=("multiprocessing_context",), **settings):
    """A loader whose workers are not forked."""
    seen = loader(
        things=things, start_method=method, multiprocessing_context=method if explicit else None, **settings
    )
    return dataclasses.replace(seen, explicit=explicit)


def thing(path="dataset.f", kind="open-file", **fields):
    return Thing(**{"path": path, "kind": kind, "type": kind, "site": Site(FILE, 12), **fields})


def big(nbytes):
    return DatasetSeen(type="Corpus", site=Site(FILE, 8), nbytes=nbytes)


def silent(zero_rung, **fields):
    """The rung without workers, that hangs like the program."""
    return dataclasses.replace(
        zero_rung, outcome="hang", looks=(consumer(frame(20), *FETCH, wchan="wait_woken"),), **fields
    )
