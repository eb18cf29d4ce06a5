"""The black box of a worker: what it was doing, readable by the consumer when it can no longer tell.

    word:   0      1       2        3         4      5      6       7
          phase  number  attempt  position  index  tail  signal  asked     the rest of the first page is empty
          ─────────────────────────────────────────────────────────────
          text: what `faulthandler` wrote, up to the first zero byte

One anonymous segment of fixed size per worker. The consumer makes it and passes the descriptor on, the worker
writes, the consumer reads its own mapping at any time, also after the worker's death.

Guarantees:

* Writing is a few stores into shared memory: no system call, no lock, nothing that can block or fail.
* `position` never belongs to an older ticket than `number`: it is cleared first.
* The worker cannot write past the box: its size is sealed.

`create`, `read` and `stack` run in the consumer; `open`, `arm` and the stores run in the worker.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import signal
import time
from typing import Any, NamedTuple

from penstock._arena.segment import Mapping, Segment
from penstock._base import libc
from penstock.errors import ArenaError

TEXT = libc.PAGE  # where the text begins
NBYTES = TEXT + (64 << 10)

PHASES = ("", "idle", "starting", "fetching", "collating", "handing over")  # "": it has not begun to live
IDLE, STARTING, FETCHING, COLLATING, HANDING_OVER = range(1, len(PHASES))

# A signal that programs hardly use: on it, a worker writes its stack into the box.
ASK = int(signal.SIGRTMAX) - 3 if hasattr(signal, "SIGRTMAX") else 0

_OURS = f"{os.sep}penstock{os.sep}_engine{os.sep}"
_PHASE, _NUMBER, _ATTEMPT, _POSITION, _INDEX, _TAIL, _SIGNAL, _ASKED = range(8)
_NONE = -1
_NO_INDEX = -(1 << 63)  # the index is not an int that fits
_FADE = 6  # the tail loses a 64th with each ticket that is faster
_CATCH_UP = 2  # the pace gains a quarter with each ticket that is slower


class Report(NamedTuple):
    """What a worker was doing."""

    phase: str
    number: int | None = None
    attempt: int | None = None
    position: int | None = None  # of the sample in its batch; None when it is not known
    index: int | None = None  # type: ignore[assignment]  # what the dataset was asked for, if known and an int
    tail_s: float = 0.0  # how long the slowest of its recent tickets took


class BlackBox:
    """One worker's box, on either side."""

    def __init__(self, segment: Segment | None = None, mapping: Mapping | None = None) -> None:
        self._segment = segment
        whole = memoryview(bytearray(TEXT) if mapping is None else mapping.whole).cast("B")
        self._words = whole[:TEXT].cast("q")
        self._text = whole[TEXT:]
        self._asked = 0
        self._start_ns = 0
        self._tail_ns = 0
        # What tickets take of late at best: on a busy machine many take longer, through no fault of theirs.
        # Before the first, as if they were slow.
        self.pace_ns = 1 << 62

    # ---- in the consumer ------------------------------------------------------------------------

    @classmethod
    def create(cls) -> BlackBox:
        """Make the box of a worker that is about to be born; ArenaError when the system refuses."""
        segment = Segment.create()
        try:
            # All pages now: a store must not be the one that finds the memory used up.
            os.posix_fallocate(segment.fd, 0, NBYTES)
            segment.nbytes = NBYTES
            with contextlib.suppress(OSError):  # not a memfd
                fcntl.fcntl(segment.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            return cls(segment, Mapping(libc.mmap(segment.fd, NBYTES, libc.MAP_SHARED), NBYTES))
        except OSError as failure:
            segment.close()
            raise ArenaError(
                "PS702",
                f"the system refused {NBYTES} bytes of shared memory for a worker's black box",
                why=str(failure),
                fix="see `penstock explain PS702` for the limits that matter",
            ) from failure

    @property
    def fd(self) -> int:
        """The descriptor to pass on; -1 once closed."""
        return -1 if self._segment is None else self._segment.fd

    def close(self) -> None:
        """Close the descriptor; the box stays readable. May be called twice."""
        if self._segment is not None:
            self._segment.close()

    def read(self) -> Report:
        """What the worker is doing, or was doing when it died."""
        phase, number, attempt, position, index, tail_ns = self._words[:6].tolist()
        name = PHASES[phase] if 0 <= phase < len(PHASES) else ""  # user code in the worker can write here too
        if phase < FETCHING:
            return Report(name, tail_s=tail_ns / 1e9)
        where = position if position >= 0 and phase == FETCHING else None
        what = index if where is not None and index != _NO_INDEX else None
        return Report(name, number, attempt, where, what, tail_ns / 1e9)

    def stack(self) -> str:
        """What `faulthandler` has written so far, without what is not about calls."""
        text = bytes(self._text).partition(b"\0")[0].decode(errors="replace")
        lines = [
            line for line in text.splitlines() if line.strip() and not line.startswith("Extension modules")
        ]
        return "\n".join(lines)

    def ask(self) -> int:
        """Before a stack is asked for: the signal to send, or 0 when the worker does not take it."""
        self._words[_ASKED] += 1
        return int(self._words[_SIGNAL])

    # ---- in the worker --------------------------------------------------------------------------

    @classmethod
    def open(cls, fd: int) -> BlackBox:
        """The worker's side of a box. The descriptor is the box's from now on."""
        segment = Segment(fd, NBYTES)
        try:
            return cls(segment, Mapping(libc.mmap(fd, NBYTES, libc.MAP_SHARED), NBYTES))
        except OSError:
            segment.close()
            return cls()  # it works without; the consumer reads that it has not begun to live

    def disarm(self) -> None:
        """Take away inherited handlers, before torch's are set: they would lie below, and never be called."""
        if self.fd >= 0:
            faulthandler.disable()

    def arm(self) -> None:
        """Have the stack written into the box when the process crashes, and when it is asked for.

        The handlers that are there now are called afterwards: torch's put the crash in words on stderr.
        """
        if self.fd < 0:
            return
        self._rewind()
        faulthandler.enable(file=self.fd, all_threads=True)
        if ASK and signal.getsignal(ASK) == signal.SIG_DFL:  # else the program has a use for it
            faulthandler.register(ASK, file=self.fd, all_threads=True, chain=False)
            self._words[_SIGNAL] = ASK

    def begin(self, number: int, attempt: int) -> None:
        """A ticket begins."""
        words = self._words
        words[_POSITION] = _NONE
        words[_NUMBER] = number
        words[_ATTEMPT] = attempt
        words[_PHASE] = FETCHING
        if words[_ASKED] != self._asked:
            self._rewind()
        self._start_ns = time.monotonic_ns()

    def at(self, position: int, index: Any) -> None:
        """The sample at this position of the batch begins."""
        words = self._words
        try:
            words[_INDEX] = index if type(index) is int else _NO_INDEX
        except ValueError:  # more than 64 bits
            words[_INDEX] = _NO_INDEX
        words[_POSITION] = position

    def phase(self, number: int) -> None:
        """Another phase begins; only `fetching` has a sample."""
        self._words[_PHASE] = number

    def end(self) -> None:
        """The ticket is answered."""
        took = time.monotonic_ns() - self._start_ns
        tail, pace = self._tail_ns, self.pace_ns
        self.pace_ns = took if took < pace else pace + (pace >> _CATCH_UP)
        self._tail_ns = tail = took if took > tail else tail - (tail >> _FADE)
        words = self._words
        words[_TAIL] = tail
        words[_PHASE] = IDLE

    def _rewind(self) -> None:
        """Forget the text: the stack of a ticket that is over."""
        self._asked = self._words[_ASKED]
        self._text[:] = bytes(len(self._text))
        with contextlib.suppress(OSError):  # the dataset has closed it
            os.lseek(self.fd, TEXT, os.SEEK_SET)


def last_calls(stack: str, most: int = 8) -> list[str]:
    """The user's own calls in a stack of `faulthandler`'s, the last one first."""
    sections: list[list[str]] = [[]]
    for line in stack.splitlines():
        if "thread 0x" in line.lower():
            sections.append([])
            if line.startswith("Current"):
                sections[0] = sections[-1]
        elif line.startswith("  "):
            sections[-1].append(line.strip())
    calls = sections[0] or next(filter(None, sections), [])
    ours = next((place for place, call in enumerate(calls) if _OURS in call), len(calls))
    return calls[: min(ours, most)] or calls[:most]
