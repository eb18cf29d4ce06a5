"""The warden: a small process between the trial and the patient, from which nothing escapes.

    trial ──order, later a word──▶ warden ──fork, exec──▶ patient ──▶ workers, ranks, daemons …
          ◀──one JSON a line──────        ◀──────────── orphans come back to it

Guarantees:

* Every process that the patient starts stays below the warden, for it adopts orphans.
* When the program has ended, or the trial says so, or dies, the warden kills all of them until none is left.
  It removes the trial's folder if the trial cannot.
* It imports nothing but the standard library and the two small modules beside it, and starts in ~50 ms.

What it says: {"pid": N, "impossible": text} when the patient runs, {"refused": text} when it could not be
started, {"reaped": pid, "status": S, "at": t} for each process that ended and was its child,
{"crowd": true} when there were too many of them, {"left": [names]} about those that were still there a
moment after the program itself had ended, and {"gone": true} at the end, or {"stuck": [pids]} if the kernel
would not let some of them go.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from typing import Any

from penstock._lab import namespace, tree

COUNT_S = 0.25  # between two counts of the patient's processes
GRACE_S = 1.0  # for processes that end on their own when the program has: resource trackers, fork servers
# A worker of torch's looks every 5 s whether its parent is there: one that is still there then is stuck.
WORKER_GRACE_S = 6.0
TIDY_S = 6.0  # far more than they take, but on a machine that is very busy
KILL_S = 10.0  # after which what is still there sits in the kernel for good
WORKER_NAME = "pt_data_worker"  # which torch gives its workers
OOM_SCORE = "600"  # when memory is short the kernel shall choose the patient, not whoever examines it

_STREAMS = 3
_MANY = 40  # processes: more are stopped first, so that they cannot multiply while they are killed


def main() -> None:
    """Carry out one order."""
    parent = os.getppid()
    order = json.loads(_line())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    wake = _wake_on_child()
    order["policy"] = _take_precedence()
    with contextlib.suppress(OSError):
        namespace.adopt_orphans()
    is_alone = False
    try:
        is_alone = _watch(order, wake)
    finally:
        _end_all()
        if is_alone or os.getppid() != parent:
            shutil.rmtree(order["folder"], ignore_errors=True)


def _take_precedence() -> int:
    """Be served before the patient, or a thousand processes of it would starve us; the policy until now."""
    policy = os.sched_getscheduler(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -5)
    return policy


def _line() -> bytes:
    """The order: one line, and not a byte more, for what follows is awaited with `select`."""
    parts = []
    while (byte := os.read(0, 1)) not in {b"\n", b""}:
        parts.append(byte)
    return b"".join(parts)


def _watch(order: dict[str, Any], wake: int) -> bool:
    """Until the program has ended, or shall be ended; whether the trial is no more."""
    pid, impossible = _start(order)
    _say(pid=pid, impossible=impossible)
    orders, ended_at = sys.stdin.fileno(), 0.0
    crowd = _Crowd(order["processes"])
    while True:
        ready = select.select([orders, wake], [], [], COUNT_S)[0]
        if orders in ready:
            return not os.read(orders, 64)  # a word: it has seen enough; none: it has died
        if wake in ready:
            os.read(wake, 4096)
        if pid in _reap():
            ended_at = time.monotonic()
        if crowd.is_too_large():
            _say(crowd=True)
            return False
        if ended_at and (time.monotonic() >= ended_at + _grace_s() or not _alive()):
            _say(left=[process.name for process in _alive()])
            return False


def _grace_s() -> float:
    """How long what the program has left may take to end on its own."""
    return WORKER_GRACE_S if any(process.name == WORKER_NAME for process in _alive()) else GRACE_S


class _Crowd:
    """Counts the patient's processes: here, for the trial may be starved by them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._base = self._entries()

    def is_too_large(self) -> bool:
        """Whether there are more than allowed."""
        if self._entries() - self._base <= self._most // 2:
            return False  # a count of names, and that is enough nearly always
        return len(tree.below(os.getpid())) > self._most

    @staticmethod
    def _entries() -> int:
        return len(os.listdir("/proc"))  # noqa: PTH208 - a count


def _start(order: dict[str, Any]) -> tuple[int, str]:
    """Fork the patient and wait until it has become the program, or has said why not."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(told)
            _become(order, tell)
        except BaseException as error:  # noqa: BLE001 - nothing may return into the warden's own code
            os.write(tell, f"refused {type(error).__name__}: {error}"[:2000].encode())
        finally:
            os._exit(127)
    os.close(tell)
    with open(told, "rb") as pipe:  # noqa: PTH123 - a descriptor
        words = pipe.read().decode(errors="replace")
    if words.startswith("refused "):
        _say(refused=words.removeprefix("refused "))
    return pid, "" if words.startswith("refused ") else words


def _become(order: dict[str, Any], tell: int) -> None:
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, order["policy"], os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, order["nice"])
    os.setsid()
    namespace.die_with_parent()
    _bound_forks(order["processes"])
    resource.setrlimit(
        resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1])
    )  # no core files
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write(OOM_SCORE)
    if order["shm_bytes"] is not None:
        try:
            namespace.private_shm(order["shm_bytes"])
        except namespace.NotPossibleError as error:
            os.write(tell, str(error)[:2000].encode())
    if order["nofile"] is not None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        is_allowed = hard == resource.RLIM_INFINITY or order["nofile"] <= hard
        if not is_allowed:
            os.write(tell, f"this user may have {hard} descriptors at most".encode())
        resource.setrlimit(resource.RLIMIT_NOFILE, (order["nofile"] if is_allowed else hard, hard))
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, stream in enumerate((null, order["stdout"], order["stderr"])):
        os.dup2(stream, fd, inheritable=True)
    os.set_inheritable(tell, False)  # noqa: FBT003 - exec closes it, which tells that all went well
    os.closerange(_STREAMS, tell)
    os.closerange(tell + 1, 256)
    _default_signals()
    os.chdir(order["cwd"])
    os.execve(order["argv"][0], order["argv"], order["env"])  # noqa: S606 - no shell


def _bound_forks(processes: int) -> None:
    """Far above what is allowed, and above all that the user has now: the kernel stops a fork bomb there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    present = sum(len(tree.threads_of(process.pid)) for process in tree.everybody()) if os.getuid() else 0
    bound = present + 8 * processes
    if os.getuid() and (soft == resource.RLIM_INFINITY or bound < soft):  # root is not bound by it anyway
        resource.setrlimit(resource.RLIMIT_NPROC, (bound, hard))


def _default_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _wake_on_child() -> int:
    """A descriptor that becomes readable when a child has ended."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    os.set_blocking(readable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return readable


def _reap(*, is_told: bool = True) -> set[int]:
    """Read the status of every child that has ended, and tell it unless it was our doing."""
    ended: set[int] = set()
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.add(pid)
        if is_told:
            _say(reaped=pid, status=os.waitstatus_to_exitcode(status), at=time.monotonic())


def _alive() -> list[tree.Process]:
    """Who is still there, but for those that only tidy up and then end."""
    return [process for process in tree.below(os.getpid()) if process.is_alive and not _tidies(process)]


def _end_all() -> None:
    """Kill until nobody is left; those that tidy up after dead processes come last, and have a moment."""
    began = time.monotonic()
    while time.monotonic() < began + KILL_S:
        found = tree.below(os.getpid())
        if len(found) > _MANY:
            for process in found:
                with contextlib.suppress(OSError):
                    os.kill(process.pid, signal.SIGSTOP)
        may_tidy = time.monotonic() < began + TIDY_S and len(found) <= _MANY
        tree.kill(process for process in found if not (may_tidy and _tidies(process)))
        _reap(is_told=False)
        if not found:
            _say(gone=True)
            return
        time.sleep(0.005)
    _say(stuck=[process.pid for process in tree.below(os.getpid())])


def _tidies(process: tree.Process) -> bool:
    """Whether it removes names of shared memory when those that made them are dead, and ends then."""
    if process.name.startswith("torch_shm_manag"):
        return True
    return "multiprocessing.resource_tracker" in tree.slurp(f"/proc/{process.pid}/cmdline")


def _say(**words: Any) -> None:
    with contextlib.suppress(OSError):  # the trial is no more
        os.write(1, json.dumps(words).encode() + b"\n")
