"""Workers as processes, batches through the arena.

    consumer ══ control channel ══ zygote          Spawn, Quit ▶   ◀ Born, Lost
    consumer ══ worker channel ═══ worker 0        Assign, Rewind, Verdict ▶   ◀ Signs, Filled, Failed, …
    consumer ══ worker channel ═══ worker 1 …

Guarantees:

* `wait` returns at once when a worker or the zygote dies, after all that the dead had sent.
* A slab goes to one worker at a time, and comes back to the arena on every path.

Runs on the consumer's thread.
"""

from __future__ import annotations

import os
import select
import signal
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock._arena import codec
from penstock._arena.arena import Arena, Slab
from penstock._base import host
from penstock._engine import events, failure, health, sight
from penstock._engine.backends.birth import ZygoteHandle
from penstock._engine.black_box import BlackBox, Report
from penstock._engine.channel import Channel, ChannelClosed, pair
from penstock._engine.messages import (
    Assign,
    Born,
    Exhausted,
    Failed,
    Filled,
    Kill,
    Lost,
    Retired,
    Rewind,
    Rewound,
    Signs,
    Spawn,
    Verdict,
)
from penstock._engine.stall import Observation
from penstock.errors import ArenaError, DataError

# No message here waits for user code, so a control channel that takes longer is broken.
CONTROL_LIMIT_S = 30.0

# How long a stack is waited for: a worker that is stopped, or inside the kernel, does not answer.
STACK_LIMIT_S = 0.5
STACK_STEP_S = 0.01


class Payload(NamedTuple):
    """An answer that has arrived: its slab, and where the batch lies or why there is none.

    With neither, all of its samples were bad and left out.
    """

    slab: Slab
    nbytes: int
    place: codec.Place | None
    failure: failure.Failure | None


class WorkerProcess:
    """A worker as torch's users know it: pid, is_alive, join, exitcode."""

    daemon = True

    def __init__(self, backend: ProcessBackend, worker: int) -> None:
        self._backend = weakref.ref(backend)
        self._pid: int | None = None
        self._exitcode: int | None = None
        self.worker = worker
        self.name = f"penstock-worker-{worker}"

    def __repr__(self) -> str:
        state = "running" if self._exitcode is None else f"exited {self._exitcode}"
        return f"<{self.name} pid={self._pid} {state}>"

    @property
    def pid(self) -> int | None:
        """The process id; waits for the zygote to have forked it."""
        backend = self._backend()
        deadline = time.monotonic() + CONTROL_LIMIT_S
        while self._pid is None and backend is not None and time.monotonic() < deadline:
            if not backend.listen(0.05):
                break
        return self._pid

    ident = pid

    @property
    def exitcode(self) -> int | None:
        """None while it runs, then its exit status, negative for a signal."""
        backend = self._backend()
        if self._exitcode is None and backend is not None:
            backend.listen(0)
        return self._exitcode

    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self.exitcode is None

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has exited, at most `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.exitcode is None and (deadline is None or time.monotonic() < deadline):
            backend = self._backend()
            if backend is None or not backend.listen(0.05):
                return

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        backend = self._backend()
        if backend is not None and self._exitcode is None:
            backend.command(Kill(self.worker, number))


class ProcessBackend:
    """The worker processes of one iterator."""

    def __init__(self, zygote: ZygoteHandle, workers: int, arena: Arena) -> None:
        self.arena = arena
        self.zygote = zygote
        self.on_close: Callable[[], object] = arena.close
        self.processes = [WorkerProcess(self, worker) for worker in range(workers)]
        self.channels: dict[int, Channel] = {}
        self.is_asleep = False
        self._owner = os.getpid()
        self._slabs: dict[tuple[int, int], Slab] = {}  # by ticket and attempt
        self._news: list[tuple[int, ...]] = [() for _ in range(workers)]  # slabs to forget
        self._heard: list[events.Event] = []  # events found while looking for something else
        self._ended: set[int] = set()  # workers whose iterable dataset has no more in this epoch
        self._looks: dict[int, health.Look | None] = {}
        self._condemned: dict[int, tuple[int, ...]] = {}  # by ticket: samples that kill
        self._boxes: dict[int, BlackBox] = {}
        self._reasons: dict[int, str] = {}  # of workers that we have killed
        self._oom_kills = host.oom_kills()
        self._poll = select.poll()
        self._poll.register(zygote.channel.fileno(), select.POLLIN)
        if zygote.watch is not None:
            self._poll.register(zygote.watch, select.POLLIN)
        self._by_fd: dict[int, int] = {}
        _backends.add(self)
        _watch_forks()
        for worker in range(workers):
            arena.forget_worker(worker)  # of a backend that had it before
        try:
            for worker in range(workers):
                self._spawn(Spawn(worker))
        except BaseException:
            self._abort()
            raise

    # ---- commands -------------------------------------------------------------------------------

    def send(self, worker: int, number: int, attempt: int, indices: Any) -> bool:
        """Give a ticket to a worker; False when there is no slab for it yet."""
        slab = self.arena.reserve(worker)
        if slab is None:
            return False
        self._slabs[number, attempt] = slab
        slab.worker = worker
        fds = None
        if worker not in slab.known_to:
            slab.known_to.add(worker)
            fds = [slab.segment.fd]
        self._spread_news()
        given_up, self._news[worker] = self._news[worker], ()
        condemned = self._condemned.get(number, ()) if self._condemned else ()
        message = Assign(
            number, attempt, indices, slab.number, slab.nbytes, self.arena.expected, given_up, condemned
        )
        self._post(worker, message, fds)
        return True

    def rewind(self, shared_seed: int | None, epoch: int = 0, attributes: tuple[Any, ...] = ()) -> None:
        """Begin the next epoch in every worker, with these new values of the dataset's attributes."""
        self._condemned.clear()
        for worker in self.channels:
            self._post(worker, Rewind(shared_seed, epoch, attributes))

    @property
    def is_gone(self) -> bool:
        """Whether the zygote is gone, and with it every worker."""
        return self.zygote.channel.fileno() < 0

    def respawn(self, order: Spawn) -> None:
        """Start a successor of a worker that is gone."""
        worker = order.worker
        for key in [key for key, slab in self._slabs.items() if slab.worker == worker]:
            self.arena.cancel(self._slabs.pop(key))  # nobody can write to it any more
        self.arena.forget_worker(worker)
        self._news[worker] = ()
        process = self.processes[worker]
        process._pid = process._exitcode = None  # noqa: SLF001 - the backend owns its processes
        self._looks.pop(worker, None)
        self._spawn(order)

    def condemn(self, number: int, position: int) -> None:
        """Have this sample of a ticket left out when the ticket is sent again."""
        self._condemned[number] = (*self._condemned.get(number, ()), position)

    def judge(self, worker: int, *, is_sharded: bool) -> None:
        """Tell a worker how to go on with the stream that it has told of."""
        self._post(worker, Verdict(is_sharded))

    def command(self, message: Any) -> None:
        """Send the zygote a command, if it is still there."""
        try:
            self._control(message)
        except ChannelClosed:
            self._zygote_lost()

    def open(self, payload: Payload) -> Any:
        """The batch of an answer; raises what the worker raised."""
        slab = payload.slab
        if payload.failure is not None:
            self.arena.cancel(slab)
            raise failure.unpack(payload.failure)
        if payload.place is None:
            self.arena.cancel(slab)
            return events.EMPTY
        view, is_held = self.arena.open(slab, payload.nbytes, payload.place.end)
        try:
            batch = codec.decode(view, payload.place, copy=not is_held)
        except Exception as error:
            if _can_decode(view, payload.place):
                raise  # not the batch's fault: it came from outside, such as from a signal handler
            raise DataError(
                "PS504",
                "a batch arrived but could not be rebuilt in the training process",
                why=f"{type(error).__name__}: {error}",
                fix="make `pickle.loads(pickle.dumps(batch))` work for what the dataset returns",
            ) from error
        finally:
            if not is_held:
                self.arena.copied(slab)
        return batch

    def discard(self, payload: Payload) -> None:
        """Drop an answer that nobody will see, also one that was already opened."""
        self.arena.cancel(payload.slab)

    def find_stuck(self, workers: list[int]) -> int | None:
        """One of these workers that provably waits for a lock nobody holds, or None. Ask twice."""
        for worker in workers:
            pid = self.processes[worker].pid
            before, now = self._looks.get(worker), health.look(pid) if pid else None
            self._looks[worker] = now
            if health.is_stuck(before, now):
                return worker
        return None

    def observe(self, worker: int) -> Observation | None:
        """What can be seen of a worker; None when it is not there, or hidden."""
        pid, box = self.processes[worker]._pid, self._boxes.get(worker)  # noqa: SLF001
        if not pid or box is None:
            return None
        told = box.read()
        return sight.observe(pid, (told.number, told.attempt, told.phase, told.position))

    def report(self, worker: int) -> Report:
        """What a worker says that it is doing."""
        box = self._boxes.get(worker)
        return Report("") if box is None else box.read()

    def ask_stack(self, worker: int) -> str:
        """The worker's Python stack, or nothing if it cannot tell within STACK_LIMIT_S."""
        box = self._boxes.get(worker)
        if box is None:
            return ""
        before, number = box.stack(), box.ask()
        if not number:
            return before
        self.command(Kill(worker, number))
        deadline, text = time.monotonic() + STACK_LIMIT_S, before
        while time.monotonic() < deadline:
            time.sleep(STACK_STEP_S)  # it writes from a signal handler, which can tell nobody
            last, text = text, box.stack()
            if text == last != before:
                break
        return text[len(before) :].strip() or before

    def kill(self, worker: int, reason: str) -> None:
        """End a worker. Its `WorkerLost` will give the reason."""
        self._reasons[worker] = reason
        self.command(Kill(worker, signal.SIGKILL))

    # ---- events ---------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None) -> list[events.Event]:
        """What has happened; waits for something up to `timeout_s`, then returns nothing."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        left: float | None = timeout_s
        while not self._heard and self.listen(left):  # not every message is an event
            if deadline is not None and (left := deadline - time.monotonic()) <= 0:
                break
        heard, self._heard = self._heard, []
        return heard

    def listen(self, timeout_s: float | None) -> bool:
        """Take in messages, waiting up to `timeout_s` for the first; False once nobody is left."""
        if self.zygote.channel.fileno() < 0 or self._owner != os.getpid():
            return False
        for worker, channel in self.channels.items():
            if channel.has_outbox:
                self._flush(worker)
        self.is_asleep = True
        ready = self._poll.poll(None if timeout_s is None else timeout_s * 1000)
        self.is_asleep = False
        for fd, _ in ready:
            speaker = self._by_fd.get(fd)
            if speaker is not None:
                self._hear(speaker)
            elif fd == self.zygote.channel.fileno():
                self._hear_zygote()  # else a channel that was closed by what was heard before
            elif fd == self.zygote.watch:
                self._hear_zygote()
                self._zygote_lost()
        return True

    def _hear(self, worker: int) -> None:
        channel = self.channels[worker]
        if channel.fileno() < 0:
            return
        if channel.has_outbox:
            self._flush(worker)
        try:
            parcels = channel.receive_nowait()
        except ChannelClosed:
            self._hang_up(worker)  # its exit status comes from the zygote
            return
        for parcel in parcels:
            self._take(parcel.message)

    def _take(self, message: Any) -> None:
        if isinstance(message, Rewound):
            # Only now: until here it may still answer for tickets of the epoch before.
            self._ended.discard(message.worker)
            self._heard.append(events.Rewound(message.worker))
            return
        if isinstance(message, Retired):
            self._reasons[message.worker] = events.RETIRED
            return
        if isinstance(message, Signs):
            self._heard.append(events.Noticed(message.worker, tuple(message)))
            return
        slab = self._slabs.pop((message.number, message.attempt))
        slab.nbytes = slab.segment.nbytes = max(slab.nbytes, message.nbytes)
        if isinstance(message, Exhausted):
            self.arena.cancel(slab)
            if message.worker not in self._ended:  # it answers so for every ticket that it still has
                self._ended.add(message.worker)
                self._heard.append(events.Exhausted(message.worker))
            return
        slab.is_spent |= message.is_kept
        if isinstance(message, Filled):
            place = None if message.place is None else codec.Place(*message.place)
            payload, state = Payload(slab, message.nbytes, place, None), message.state
        else:
            assert isinstance(message, Failed), message
            payload, state = Payload(slab, message.nbytes, None, failure.Failure(*message.failure)), None
        worker, number, attempt = message.worker, message.number, message.attempt
        self._heard.append(events.Answered(worker, number, attempt, payload, message.bad, state))

    def _hear_zygote(self) -> None:
        try:
            parcels = self.zygote.channel.receive_nowait()
        except ChannelClosed:
            self._zygote_lost()
            return
        for parcel in parcels:
            self._note(parcel.message)

    def _note(self, message: Any) -> None:
        process = self.processes[message.worker]
        if isinstance(message, Born):
            process._pid = message.pid  # noqa: SLF001 - the backend owns its processes
        elif isinstance(message, Lost):
            if message.worker in self.channels:
                self._hear(message.worker)  # what it said before it died comes first
                self._hang_up(message.worker)
            process._exitcode = message.status  # noqa: SLF001
            self._heard.append(self._describe(message))

    def _describe(self, lost: Lost) -> events.WorkerLost:
        """The death of a worker, with what its black box says."""
        box = self._boxes.pop(lost.worker, None)
        told, stack = (Report(""), "") if box is None else (box.read(), box.stack())
        reason = self._reasons.pop(lost.worker, "")
        was_oom = False
        if lost.status == -signal.SIGKILL and not reason and host.oom_kills() > self._oom_kills:
            was_oom = True
            self._oom_kills += 1  # the next death may be one of several
        return events.WorkerLost(
            lost.worker, lost.pid, lost.status, *told[1:5], told.phase, stack, was_oom, reason
        )

    def _zygote_lost(self) -> None:
        fd, watch = self.zygote.channel.fileno(), self.zygote.watch
        if fd < 0:
            return
        if watch is not None:
            self._poll.unregister(watch)
        self._poll.unregister(fd)
        self.zygote.is_gone = True
        self.zygote.end()
        for process in self.processes:
            if process._exitcode is None:  # noqa: SLF001
                # The kernel has killed it together with the zygote.
                self._note(Lost(process.worker, process._pid or 0, -signal.SIGKILL))  # noqa: SLF001

    # ---- channels -------------------------------------------------------------------------------

    def _spawn(self, order: Spawn) -> None:
        here, there = pair()
        box = _box()
        try:
            fds = [there.fileno()] if box is None else [there.fileno(), box.fd]
            self._control(order, fds)
        except ChannelClosed:
            self._zygote_lost()
        finally:
            there.close()
            if box is not None:
                box.close()  # it stays readable
                self._boxes[order.worker] = box
        self.channels[order.worker] = Channel(here)
        self._by_fd[here.fileno()] = order.worker
        self._poll.register(here.fileno(), select.POLLIN)

    def _abort(self) -> None:
        """Not all workers could be asked for: end what there is, which has not begun to work."""
        for channel in self.channels.values():
            channel.close()
        self.zygote.wait_end(time.monotonic())

    def _control(self, message: Any, fds: list[int] | None = None) -> None:
        channel = self.zygote.channel
        if channel.fileno() < 0:
            raise ChannelClosed
        channel.send(message, fds)
        deadline = time.monotonic() + CONTROL_LIMIT_S
        while not channel.flush() and time.monotonic() < deadline:
            poll = select.poll()
            poll.register(channel.fileno(), select.POLLOUT)
            poll.poll(1000)

    def _post(self, worker: int, message: Any, fds: list[int] | None = None) -> None:
        channel = self.channels[worker]
        if channel.fileno() < 0:
            return  # its death is on the way to the runtime
        try:
            channel.send(message, fds)
        except ChannelClosed:
            return  # as above
        if channel.has_outbox:
            self._watch_outbox(worker)

    def _flush(self, worker: int) -> None:
        try:
            self.channels[worker].flush()
        except ChannelClosed:
            return
        self._watch_outbox(worker)

    def _watch_outbox(self, worker: int) -> None:
        channel = self.channels[worker]
        wanted = select.POLLIN | (select.POLLOUT if channel.has_outbox else 0)
        self._poll.modify(channel.fileno(), wanted)

    def _hang_up(self, worker: int) -> None:
        channel = self.channels[worker]
        fd = channel.fileno()
        if fd >= 0:
            self._poll.unregister(fd)
            del self._by_fd[fd]
            channel.close()

    def _spread_news(self) -> None:
        given_up = self.arena.given_up()
        if given_up:
            self._news = [(*known, *given_up) for known in self._news]

    def reclaim(self) -> None:
        """After all workers have ended: take back the slabs that they had."""
        for slab in self._slabs.values():
            self.arena.cancel(slab)
        self._slabs.clear()
        for event in self._heard:
            if isinstance(event, events.Answered):
                self.discard(event.payload)
        self._heard.clear()
        self.on_close()


def _box() -> BlackBox | None:
    try:
        return BlackBox.create()
    except ArenaError:
        return None  # a worker can do without: its death is told with less


def _can_decode(view: memoryview, place: codec.Place) -> bool:
    try:
        codec.decode(view, place, copy=True)
    except Exception:  # noqa: BLE001 - whatever it is, the caller has the first one
        return False
    return True


_backends: weakref.WeakSet[ProcessBackend] = weakref.WeakSet()
_is_watching = False


def _watch_forks() -> None:
    global _is_watching  # noqa: PLW0603 - the hook is installed once, with the first backend
    if not _is_watching:
        _is_watching = True
        os.register_at_fork(after_in_child=_leave_to_parent)


def _leave_to_parent() -> None:
    # A child of the consumer holds copies of its channel ends. Closed, they cannot keep a worker from
    # seeing the end-of-file when the consumer dies, and the child cannot speak in its parent's name.
    for backend in list(_backends):
        backend.zygote.leave()
        for channel in backend.channels.values():
            channel.close()
