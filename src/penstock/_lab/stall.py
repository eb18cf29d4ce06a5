"""Is the patient slow, or stuck? And how long to wait until that is certain.

Two questions, both pure:

* `Stillness`: for how long has nothing moved? A process moves when it computes, reads or writes, or would
  like to run and is not let (a loaded machine is nobody's stall). Of a consumer only the main thread
  counts, for other threads of it may live on while it waits; of a worker, every thread and child.
* `judge`: what do the stacks say about the silence, and after how much of it is it a stall?

| what is seen | it is | seconds |
|---|---|---|
| consumer waits for a batch, every worker idle | a batch was lost | `CERTAIN_S`, `KNOWN_S` if it was told |
| the same, but a worker is gone: torch notices that every 5 s | a death, soon told | `IO_S` |
| a worker waits for a lock of its own process that no thread there can release | a dead lock | `CERTAIN_S` |
| every rank waits for the others | they differ | `CERTAIN_S` |
| some ranks wait for others; a worker for a lock that others share | likely a hang | `LIKELY_S` |
| a worker waits for a socket, a pipe, a child | perhaps only a slow partner | `IO_S` |
| a worker sleeps on purpose or polls | slow, up to a point | `SLEEP_S` |
| an iterator shuts down (torch joins each worker for 5 s) | slow, up to a point | `SHUTDOWN_S` for each |
| nobody waits for a batch or a rank | none of our business | never |
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass

from penstock._lab.record import Frame, ProcessLook, ThreadLook

PEEK_S = 1.0  # of stillness after which stacks are worth their price
KNOWN_S = 1.0
CERTAIN_S = 2.5
LIKELY_S = 6.0
IO_S = 7.0
SLEEP_S = 16.0
SHUTDOWN_S = 5.5
NEVER = float("inf")

MOST_STEP_S = 0.5  # two moments further apart count for this long: everybody may have been frozen
_BUSY = 0.02  # share of a CPU: a process that polls takes less
_STARVED = 0.2  # share of the time in which it wanted to run

_TORCH_LOADER = "torch/utils/data/dataloader.py"
_TORCH_WORKER = "torch/utils/data/_utils/worker.py"
_TORCH_FETCH = "torch/utils/data/_utils/fetch.py"
_RANKS = ("torch/distributed/", "torch/nn/parallel/distributed.py")
_BACKWARD = "torch/autograd/"  # in which the gradients of all ranks are brought together
_OUR_ENGINE = ("penstock/_engine/", "penstock/_loader.py")
_PLUMBING = ("multiprocessing/", "threading.py", "socket.py", "selectors.py", "queue.py")
_TORCH_DATA = "torch/utils/data/"
_SERVANTS = {"_feed", "_serve", "_pin_memory_loop", "do_pin_memory", "TMonitor"}
_NEXT = {"__next__", "_next_data", "_try_get_data", "_get_data"}
_END = {"_shutdown_workers", "__del__", "_shutdown_worker"}

_SLEEPS = ("hrtimer_nanosleep", "do_nanosleep", "common_nsleep")
_LOCKS = ("futex",)
_POLLS = ("poll_schedule_timeout", "do_poll", "do_select", "ep_poll", "do_sys_poll", "do_epoll_wait")
_FUTEX_PRIVATE = 0x80


# System calls in which programs wait, by number.
_CALLS = {
    "x86_64": {
        0: "read", 1: "write", 7: "poll", 17: "pread64", 19: "readv", 20: "writev", 23: "select",
        35: "nanosleep", 42: "connect",
        43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 72: "fcntl",
        73: "flock", 202: "futex", 219: "restart_syscall", 220: "semtimedop", 230: "clock_nanosleep",
        232: "epoll_wait", 247: "waitid", 257: "openat", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait",
        288: "accept4", 441: "epoll_pwait2",
    },
    "aarch64": {
        22: "epoll_pwait", 25: "fcntl", 32: "flock", 56: "openat", 63: "read", 64: "write", 65: "readv",
        66: "writev", 67: "pread64", 72: "pselect6", 73: "ppoll", 95: "waitid", 98: "futex", 101: "nanosleep",
        115: "clock_nanosleep", 128: "restart_syscall", 192: "semtimedop", 202: "accept", 203: "connect",
        206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 242: "accept4", 260: "wait4",
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Beat:
    """How far a process had come at one moment: all figures only grow."""

    run_s: float = 0.0
    queued_s: float = 0.0  # wanted to run, and was not let
    nbytes: int = 0  # read and written
    state: str = "S"  # "R" when any of its threads wants to run, "D" when one waits for a disk


class Stillness:
    """For how long nothing has moved."""

    def __init__(self) -> None:
        self._last: dict[int, Beat] = {}
        self._at = 0.0
        self.seconds = 0.0

    def see(self, at: float, beats: Mapping[int, Beat]) -> float:
        """One more moment; for how long it has been still now."""
        step, self._at = at - self._at, at
        last, self._last = self._last, dict(beats)
        if last.keys() != beats.keys() or any(
            has_moved(last[pid], beat, step) for pid, beat in beats.items()
        ):
            self.seconds = 0.0
        else:
            self.seconds += min(step, MOST_STEP_S)
        return self.seconds

    def excuse(self, at: float, beats: Mapping[int, Beat]) -> None:
        """We have disturbed them ourselves: what that has changed is no move."""
        self._at, self._last = at, dict(beats)

    def reset(self) -> None:
        """Something has happened that /proc does not show."""
        self.seconds = 0.0


def has_moved(last: Beat, beat: Beat, step_s: float) -> bool:
    """Whether a process did, or wanted to do, anything between two moments."""
    return (
        beat.nbytes != last.nbytes
        or beat.run_s - last.run_s > _BUSY * step_s
        or beat.queued_s - last.queued_s > _STARVED * step_s
        or beat.state in {"R", "D"}
    )


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a silence is, and after how long it is a stall."""

    kind: str  # "lost-batch", "lock", "ranks", "io", "sleep", "native", "shutdown", "none"
    after_s: float = NEVER


SLOW = Judgement("sleep", SLEEP_S)


def judge(
    looks: tuple[ProcessLook, ...],
    *,
    missing: int = 0,
    has_lost_batch: bool = False,
    waiting: frozenset[int] = frozenset(),
) -> Judgement:
    """What the stacks of a still patient say.

    `missing` workers should be there and are not; `has_lost_batch`: one has told that it could not send it.
    Where stacks cannot be had, `waiting` says which processes have told that they wait for a batch.
    """
    ranks = [look for look in looks if look.role == "rank"]
    consumers = ranks or [look for look in looks if look.role == "main"]
    waits = {look.pid: wait_of(look) for look in consumers}
    for look in looks:
        has_told = look.pid in waiting and not (look.main is not None and look.main.frames)
        if has_told or (look.role == "main" and wait_of(look) == "batch"):
            waits[look.pid] = "batch"
    if "batch" in waits.values() or "start" in waits.values():
        found = _of_batch(looks, waits)
        if missing:
            return Judgement(found.kind, max(found.after_s, IO_S))
        is_known = has_lost_batch and found.kind == "lost-batch"
        return Judgement(found.kind, KNOWN_S) if is_known else found
    if "shutdown" in waits.values():
        count = sum(look.role == "worker" for look in looks)
        return Judgement("shutdown", SHUTDOWN_S * max(2, count + 1))
    return _of_ranks(consumers, waits) if "ranks" in waits.values() else Judgement("none")


def _of_ranks(consumers: list[ProcessLook], waits: Mapping[int, str]) -> Judgement:
    others = [look for look in consumers if waits[look.pid] != "ranks"]
    if any(look.main is not None and is_awake(look.main) for look in others):
        return SLOW
    return Judgement("ranks", LIKELY_S if others else CERTAIN_S)


def _of_batch(looks: tuple[ProcessLook, ...], waits: Mapping[int, str]) -> Judgement:
    workers = [look for look in looks if look.role == "worker"]
    consumers = [look for look in looks if waits.get(look.pid) in {"batch", "start"}]
    busy = [look for look in workers if not is_idle(look)]
    # A consumer may be in the user's code itself: the dataset with num_workers=0, or a sampler.
    busy += [look for look in consumers if not workers or is_in_users_code(look)]
    if not busy:
        return Judgement("lost-batch", CERTAIN_S)
    others = [look for look in looks if look.role == "other"]
    parents = {look.parent for look in others if look.main is not None and is_awake(look.main)}
    found = [SLOW if look.pid in parents else _of_thread(look) for look in busy]
    # A process beside them that works may be the one they wait for.
    return _longest(found, is_served=any(look.cpu_moved for look in others))


def _longest(found: list[Judgement], *, is_served: bool) -> Judgement:
    """Whoever may still move decides: as long as one may, the others may be waiting for it."""
    longest = max(found, key=lambda each: each.after_s)
    return Judgement(longest.kind, SLEEP_S) if is_served and longest.kind == "io" else longest


def _of_thread(look: ProcessLook) -> Judgement:
    """What a process inside the user's code waits for."""
    thread = look.main
    if thread is None:
        return Judgement("native", IO_S)
    if is_awake(thread):
        return SLOW
    if not thread.wchan.startswith(_LOCKS):
        return Judgement("io" if thread.wchan else "native", IO_S)
    others = [other for other in look.threads if other.tid != look.pid and not is_housekeeping(other)]
    if any(is_awake(other) for other in others):
        return SLOW  # it waits for a thread of its own that will come back
    if all(is_locked(other) for other in (thread, *others)):
        return Judgement("lock", CERTAIN_S)  # nobody in this process can release anybody
    return Judgement("lock", LIKELY_S if all(other.wchan.startswith(_LOCKS) for other in others) else IO_S)


def is_awake(thread: ThreadLook) -> bool:
    """Whether a thread goes on by itself: it sleeps on purpose, polls or computes."""
    return sleeps(thread) or thread.switches_moved or thread.cpu_moved


def is_locked(thread: ThreadLook) -> bool:
    """Whether a thread waits, without a time limit, for another one of the same process."""
    return is_private_futex(thread) and not _has_deadline(thread)


def is_housekeeping(thread: ThreadLook) -> bool:
    """Whether a thread serves multiprocessing or a progress bar: it releases nobody else."""
    return any(frame.function.rpartition(".")[2] in _SERVANTS for frame in thread.frames)


def wait_of(look: ProcessLook) -> str:
    """What a consumer waits for: "batch", "start", "shutdown", "ranks" or "none".

    The main thread may wait for another one that iterates the loader in its place.
    """
    thread = look.main
    if thread is None:
        return "none"
    own = _wait_of_thread(thread)
    if own == "none" and in_collective(look):
        return "ranks"
    if own != "none" or is_awake(thread):
        return own
    others = {_wait_of_thread(other) for other in look.threads if other.tid != look.pid}
    return "batch" if "batch" in others else "none"


def in_collective(look: ProcessLook) -> bool:
    """Whether a process that stands still waits for other ranks; only a rank's backward pass does."""
    places = (*_RANKS, _BACKWARD) if look.role == "rank" else _RANKS
    frames = look.main.frames if look.main is not None else ()
    return any(place in frame.file.replace("\\", "/") for frame in frames for place in places)


def _wait_of_thread(thread: ThreadLook) -> str:
    return next((kind for kind in map(_wait_in, thread.frames) if kind), "none")


def _wait_in(frame: Frame) -> str:
    file, name = frame.file.replace("\\", "/"), frame.function.rpartition(".")[2]
    if any(part in file for part in _RANKS):
        return "ranks"
    if any(part in file for part in _OUR_ENGINE):
        return "batch"
    if not file.endswith(_TORCH_LOADER):
        return ""
    if name in _END:
        return "shutdown"
    return "batch" if name in _NEXT else "start"


def is_in_users_code(look: ProcessLook) -> bool:
    """Whether torch's loader has called something of the user's in this process, and waits for it."""
    files = [frame.file.replace("\\", "/") for frame in (look.main.frames if look.main else ())]
    place = next((place for place, file in enumerate(files) if file.endswith(_TORCH_LOADER)), 0)
    return not all(_is_plumbing(file) or _TORCH_DATA in file for file in files[:place])


def is_idle(look: ProcessLook) -> bool:
    """Whether a worker waits for something to do."""
    thread = look.main
    if thread is None or not thread.frames:
        return False
    files = [frame.file.replace("\\", "/") for frame in thread.frames]
    place = next((place for place, file in enumerate(files) if file.endswith(_TORCH_WORKER)), None)
    return place is not None and all(_is_plumbing(file) for file in files[:place])


def is_private_futex(thread: ThreadLook) -> bool:
    """Whether a thread waits for a lock that other processes cannot release."""
    name, arguments = call_of(thread)
    return name == "futex" and len(arguments) > 1 and bool(arguments[1] & _FUTEX_PRIVATE)


def _has_deadline(thread: ThreadLook) -> bool:
    arguments = call_of(thread)[1]
    return len(arguments) > 3 and arguments[3] != 0  # noqa: PLR2004 - a futex's fourth: its time limit


def sleeps(thread: ThreadLook) -> bool:
    """Whether a thread sleeps because it wants to."""
    name, arguments = call_of(thread)
    if thread.wchan.startswith(_SLEEPS) or name in {"nanosleep", "clock_nanosleep"}:
        return True
    # select and poll that watch nothing are a sleep too
    place = {"select": 0, "pselect6": 0, "poll": 1, "ppoll": 1}.get(name)
    return place is not None and len(arguments) > place and arguments[place] == 0


def call_of(thread: ThreadLook, machine: str = "") -> tuple[str, tuple[int, ...]]:
    """The system call in which a thread is, by name, and its arguments."""
    words = thread.syscall.split()
    if not words or not words[0].isdigit():
        return "", ()
    names = _CALLS.get(machine or platform.machine(), {})
    return names.get(int(words[0]), words[0]), tuple(int(word, 0) for word in words[1:])


def _is_plumbing(file: str) -> bool:
    return any(part in file.replace("\\", "/") for part in _PLUMBING)
