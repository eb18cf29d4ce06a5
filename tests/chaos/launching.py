"""The far side of `stage.py`: a process that has imported torch, and forks a consumer for each script.

Importing torch takes seconds, and a chaos test wants a process of its own for every scenario. So one process
imports it, once; a script is then run by a fork of that process, in `__main__`, at the top of the stack, as
`python script.py` would run it, down to the end of the interpreter.

It is a subreaper: whatever a dead consumer leaves behind becomes its child, where a test can see it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import types

import torch  # the point of this process

import penstock._loader  # noqa: F401 - likewise

from .stage import RESULT

_PR_SET_CHILD_SUBREAPER = 36


def next_script(fd: int) -> types.CodeType:
    """Serve until a script comes; return, in a fork, its code. The original never returns."""
    gc.collect()
    gc.freeze()  # what is imported here is never garbage: scripts end sooner without a look at it
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for pytest
    sock = socket.socket(fileno=fd)
    watches: dict[int, int] = {}  # pidfd to pid, of consumers
    while True:
        ready = {fd for fd, _ in _poll([sock.fileno(), *watches])}
        for watch in ready & set(watches):
            _tell_end(sock, watch, watches.pop(watch))
        if sock.fileno() in ready:
            code = _start(sock, watches)
            if code is not None:
                return code
        _reap(set(watches.values()))


def _start(sock: socket.socket, watches: dict[int, int]) -> types.CodeType | None:
    """Fork a consumer for the next order; in the consumer return its code."""
    data, fds, _, _ = socket.recv_fds(sock, 1 << 20, 3)
    if not data:  # pytest is gone, perhaps killed: its consumers go with it
        for pid in watches.values():
            os.killpg(pid, signal.SIGKILL)
        os._exit(0)
    pid = os.fork()
    if pid == 0:
        sock.close()
        for watch in watches:
            os.close(watch)
        return _become(json.loads(data), fds)
    for fd in fds:
        os.close(fd)
    watches[os.pidfd_open(pid)] = pid
    sock.send(json.dumps({"pid": pid}).encode())
    return None


def _tell_end(sock: socket.socket, watch: int, pid: int) -> None:
    os.close(watch)
    _, status = os.waitpid(pid, 0)
    sock.send(json.dumps({"pid": pid, "status": os.waitstatus_to_exitcode(status)}).encode())


def _poll(fds: list[int]) -> list[tuple[int, int]]:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return poll.poll(50)  # orphans end without telling


def _reap(consumers: set[int]) -> None:
    """Reap what dead consumers left, so that a zombie is never mistaken for a survivor."""
    with open("/proc/self/task/%d/children" % os.getpid()) as file:  # noqa: UP031, PTH123 - no Path needed
        orphans = {int(word) for word in file.read().split()} - consumers
    for pid in orphans:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue


def _become(order: dict, fds: list[int]) -> types.CodeType:
    os.setsid()
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    for fd in fds:
        os.close(fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # pytest may run under nohup
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["directory"])
    for name, value in order["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    if order["closed"]:
        os.dup2(1, RESULT)
        for fd, name in enumerate(("stdin", "stdout", "stderr")):
            if fd in order["closed"]:
                os.close(fd)
                setattr(sys, name, None)  # as the interpreter does when it finds them closed
    torch.set_num_threads(1)  # scripts fork: a pool of threads would not survive that
    sys.argv[:] = [order["path"]]
    main = sys.modules["__main__"]
    main.__file__ = order["path"]
    del main.launching
    with open(order["path"]) as file:  # noqa: PTH123 - as the interpreter does
        return compile(file.read(), order["path"], "exec")
