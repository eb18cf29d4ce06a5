"""A pipe between two processes that cannot hang.

A pair of unnamed sockets carries messages and, with some of them, descriptors. Nothing listens, nothing
has a name, and the other side's death is an end-of-file.

    frame:  length (4 bytes) │ descriptors (4 bytes) │ pickle of (kind, fields …)

Guarantees:

* `send` never blocks on the consumer's side: what the socket does not take waits in an outbox that
  `flush` empties. A worker that is stuck in user code can therefore not hold up its consumer.
* Descriptors arrive with the message they were sent with, in order, closed on exec.
* `receive_nowait` raises `ChannelClosed` only after every message that was sent has been returned.
"""

from __future__ import annotations

import array
import contextlib
import pickle
import socket
import struct
from collections import deque
from typing import Any, NamedTuple

from penstock._base import descriptors
from penstock._engine.messages import KINDS, NUMBERS
from penstock.errors import WorkerLostError

_HEADER = struct.Struct("<II")
_CHUNK = 1 << 16  # bytes read at once
# The other side may just have died, in a program that has set SIGPIPE to kill it.
_QUIETLY = getattr(socket, "MSG_NOSIGNAL", 0)
_MOST_FDS = 250  # the kernel passes at most 253 at a time


class ChannelClosed(Exception):  # noqa: N818 - an event of the protocol, seen by no user
    """The other side is gone."""


class Parcel(NamedTuple):
    """A message and the descriptors that came with it, which the receiver now owns."""

    message: Any
    fds: list[int]


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends."""
    try:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return _lifted(here), _lifted(there)
    except OSError as refused:
        raise WorkerLostError(
            "PS603",
            "workers cannot be started: the system refused a channel to them",
            why=str(refused),
            fix="raise the limit of open files (`ulimit -n`), or keep fewer open",
        ) from refused


def _lifted(end: socket.socket) -> socket.socket:
    fd = end.detach()
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, descriptors.lift(fd))


class Channel:
    """One end. `is_patient` ends block in `wait_message`; the others never block."""

    def __init__(self, sock: socket.socket, *, is_patient: bool = False) -> None:
        sock.setblocking(is_patient)
        self._sock: socket.socket = sock
        self._outbox: deque[tuple[memoryview, list[int]]] = deque()
        self._inbox = bytearray()
        self._fds: deque[int] = deque()

    def fileno(self) -> int:
        """The descriptor, for poll."""
        return self._sock.fileno()

    @property
    def has_outbox(self) -> bool:
        """Whether something still waits to be sent."""
        return bool(self._outbox)

    def send(self, message: Any, fds: list[int] | None = None) -> None:
        """Send a message. The descriptors stay the caller's, and must stay open until `flush`ed."""
        body = pickle.dumps((NUMBERS[type(message)], *message), 5)
        frame = _HEADER.pack(len(body), len(fds or ())) + body
        if not self._outbox and not fds:
            try:
                sent = self._sock.send(frame, _QUIETLY)
            except BlockingIOError:
                sent = 0
            except TimeoutError:
                raise  # from a signal handler: no socket here has a timeout
            except OSError as failure:
                raise ChannelClosed from failure
            if sent == len(frame):
                return
            frame = frame[sent:]
        rest, left = memoryview(frame), list(fds or ())
        while len(left) > _MOST_FDS:  # the kernel takes so many with one byte, so spread them over several
            self._outbox.append((rest[:1], left[:_MOST_FDS]))
            rest, left = rest[1:], left[_MOST_FDS:]
        self._outbox.append((rest, left))
        self.flush()

    def flush(self) -> bool:
        """Send what the socket takes now; True when nothing is left."""
        while self._outbox:
            frame, fds = self._outbox[0]
            try:
                sent = self._send_some(frame, fds)
            except BlockingIOError:
                return False
            except TimeoutError:
                raise  # as in `send`
            except OSError as failure:
                raise ChannelClosed from failure
            if sent < len(frame):
                self._outbox[0] = (frame[sent:], [])
            else:
                self._outbox.popleft()
        return True

    def receive_nowait(self) -> list[Parcel]:
        """Every message that has arrived; possibly none."""
        try:
            while self._read() == _CHUNK:
                pass  # a full read: there may be more
        except BlockingIOError:
            pass
        except ChannelClosed:
            parcels = self._parse()
            if parcels:
                return parcels  # the end-of-file is still there next time
            raise
        return self._parse()

    def wait_message(self) -> Parcel:
        """The next message; wakes also when the other side dies (`ChannelClosed`)."""
        while True:
            parcel = self._parse_one()
            if parcel is not None:
                return parcel
            self._read()

    def hang_up(self) -> None:
        """End the connection and close this end; the other side hears of it even if a fork has a copy."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self.close()

    def close(self) -> None:
        """Close this end, and descriptors that nobody took. May be called twice."""
        self._sock.close()
        self._outbox.clear()
        while self._fds:
            socket.close(self._fds.popleft())

    def _send_some(self, frame: memoryview, fds: list[int]) -> int:
        if not fds:
            return self._sock.send(frame, _QUIETLY)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        return self._sock.sendmsg([frame], rights, _QUIETLY)

    def _read(self) -> int:
        """Read once; return the number of bytes."""
        try:
            data, ancillary, _, _ = self._sock.recvmsg(
                _CHUNK, socket.CMSG_SPACE(4 * _MOST_FDS), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
            )
        except ConnectionResetError as failure:
            raise ChannelClosed from failure
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(payload[: len(payload) - len(payload) % received.itemsize])
                self._fds.extend(received)
        if not data:
            raise ChannelClosed
        self._inbox += data
        return len(data)

    def _parse(self) -> list[Parcel]:
        parcels = []
        while (parcel := self._parse_one()) is not None:
            parcels.append(parcel)
        return parcels

    def _parse_one(self) -> Parcel | None:
        inbox = self._inbox
        if len(inbox) < _HEADER.size:
            return None
        length, fd_count = _HEADER.unpack_from(inbox)
        end = _HEADER.size + length
        if len(inbox) < end:
            return None
        with memoryview(inbox) as view:
            kind, *fields = pickle.loads(view[_HEADER.size : end])
        del inbox[:end]
        return Parcel(KINDS[kind](*fields), [self._fds.popleft() for _ in range(fd_count)])
