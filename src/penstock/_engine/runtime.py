"""Wires the stages of one iterator: carries events to the scheduler, carries out what it decides.

Guarantees:

* Tickets are drawn from the sampler when torch draws them: `workers * depth` at the start of an
  epoch, then one for each batch handed out, so that samplers with side effects behave the same.
* Nothing waits for ever: every wait wakes when a worker dies, and at the user's `timeout`.
* An exception may come at any line (Ctrl-C, the handler of an alarm). In a wait it disturbs nothing. In the
  middle of a step it leaves the runtime *torn*: there are no more batches, only an error that says so.

Runs on the consumer's thread; one runtime for one iterator.
"""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from penstock._engine import events, shutdown
from penstock._engine.black_box import Report
from penstock._engine.lookout import STALLED, Lookout, Ticket, stack_lines, where
from penstock._engine.scheduler import Scheduler
from penstock._engine.stall import Observation
from penstock.errors import PenstockError, SettingsError, WorkerLostError

# The longest sleep without a look at the workers; events wake it earlier.
LOOK_S = 2.0

_NO_MORE = object()


class Backend(Protocol):
    """Where workers live, as the runtime needs it."""

    is_asleep: bool  # it does nothing but wait: an exception that comes now disturbs nothing

    def send(self, worker: int, number: int, attempt: int, indices: Any) -> bool:
        """Give a ticket to a worker; False when there is no room for its batch yet."""

    def wait(self, timeout_s: float | None) -> list[events.Event]:
        """What has happened; waits for something up to `timeout_s`."""

    def open(self, payload: Any) -> Any:
        """The batch of an answer; raises what the worker raised."""

    def discard(self, payload: Any) -> None:
        """Drop an answer that nobody will see."""

    def rewind(self, shared_seed: int | None) -> None:
        """Begin the next epoch in every worker."""

    def find_stuck(self, workers: list[int]) -> int | None:
        """One of these workers that provably waits for what can never come, or None."""

    def observe(self, worker: int) -> Observation | None:
        """What can be seen of a worker from outside; None when nothing can."""

    def report(self, worker: int) -> Report:
        """What a worker says that it is doing. For what can be observed only."""

    def ask_stack(self, worker: int) -> str:
        """A worker's Python stack, or nothing if it does not answer soon. For what can be observed only."""

    def kill(self, worker: int, reason: str) -> None:
        """End a worker; its `WorkerLost` gives the reason. For what can be observed only."""


class Runtime:
    """The engine of one iterator."""

    def __init__(
        self,
        backend: Backend,
        *,
        workers: int,
        depth: int,
        in_order: bool,
        rebirths: Iterable[Callable[[], Backend]] = (),
        lookout: Lookout | None = None,
    ) -> None:
        """`rebirths` are ways to begin again, tried in turn, should workers prove to be stuck."""
        self._backend = backend
        self._lookout = lookout or Lookout()
        self._step_s = self._lookout.step_s(LOOK_S)
        self._rebirths = deque(rebirths)
        self._workers = workers
        self._depth = depth
        self._in_order = in_order
        self._sampler: Iterator[Any] = iter(())
        self._scheduler = Scheduler(workers, depth, in_order=in_order)
        self._answers: dict[int, Any] = {}
        self._undispatched: deque[tuple[int, int]] = deque()
        self._gone: dict[int, events.WorkerLost] = {}
        self.is_closed = False
        self.is_torn = False
        self._user = threading.get_ident()

    def begin(self, sampler: Iterator[Any], *, is_first: bool, shared_seed: int | None) -> None:
        """Start an epoch over what the sampler yields."""
        self.is_torn = True
        try:
            if not is_first:
                self._rewind(shared_seed)
            self._sampler = sampler
            for _ in range(self._workers * self._depth):
                self._plan()
        except BaseException as error:
            self.is_torn = not isinstance(error, PenstockError)  # ours come between two steps
            raise
        self.is_torn = False

    def next_batch(self, timeout_s: float) -> Any:
        """The next batch; StopIteration at the end of the epoch."""
        if self.is_torn:
            raise interrupted()
        self._user = threading.get_ident()
        while True:
            number = self._scheduler.next_ready()
            if number is not None:
                return self._deliver(number)
            if not self._scheduler.outstanding or self.is_closed:
                raise StopIteration
            self._refuse_the_dead()
            self.is_torn, self._backend.is_asleep = True, False
            try:
                self._dispatch()
                self._advance(timeout_s)
            except BaseException as error:
                self.is_torn = not (self._backend.is_asleep or isinstance(error, PenstockError))
                raise
            self.is_torn = False

    def is_in_use_elsewhere(self) -> bool:
        """Whether another thread, one that still runs, was the last to ask for a batch."""
        here = threading.get_ident()
        return any(self._user == thread.ident != here for thread in threading.enumerate())

    def close(self) -> None:
        """Stop and give everything back. May be called twice. See NOTE [ Shutdown ]."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            for payload in self._answers.values():
                self._backend.discard(payload)
            self._answers.clear()
            self._undispatched.clear()
        finally:
            shutdown.close(self._backend, is_torn=self.is_torn)

    # ---- tickets --------------------------------------------------------------------------------

    def _plan(self) -> None:
        was_torn, self.is_torn = self.is_torn, False  # the sampler's own exceptions come between two steps
        indices = next(self._sampler, _NO_MORE)
        self.is_torn = was_torn
        if indices is _NO_MORE:
            return
        planned = self._scheduler.plan(indices)
        if planned is not None:
            self._undispatched.append(planned)
            self._dispatch()

    def _dispatch(self) -> None:
        ledger = self._scheduler.ledger
        while self._undispatched:
            number, worker = self._undispatched[0]
            if number in ledger:  # else void
                ticket, attempt = ledger.peek(number)
                if worker in self._gone:
                    self._undispatched.popleft()
                    continue  # nobody will do it: `_refuse_the_dead` says so when its turn comes
                if not self._backend.send(worker, number, attempt, ticket.indices):
                    return
                ledger.assign(number)
            self._undispatched.popleft()

    def _deliver(self, number: int) -> Any:
        self.is_torn = True
        payload = self._answers.pop(number)
        self._scheduler.deliver(number)
        try:
            self._plan()
            self.is_torn = False
            return self._backend.open(payload)
        except BaseException as error:  # the sampler's, the worker's, or one that came from outside
            self._backend.discard(payload)
            self.is_torn &= not isinstance(error, PenstockError)
            raise

    # ---- events ---------------------------------------------------------------------------------

    def _advance(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s if timeout_s else None
        step_s = self._step_s
        left = timeout_s or step_s
        while not (heard := self._backend.wait(min(left, step_s))):
            if deadline is not None and (left := deadline - time.monotonic()) <= 0:
                raise self._timed_out(timeout_s)
            busy = [worker for worker in range(self._workers) if self._scheduler.tickets_of(worker)]
            stuck = self._backend.find_stuck(busy)
            if stuck is not None:
                self._begin_again(stuck)
                continue
            self._look(self._scheduler.awaited())
        for event in heard:
            self._hear(event)

    def _look(self, awaited: Iterable[int]) -> None:
        """Look at the workers that hold up the consumer; see `lookout`."""
        if not self._lookout.is_on:
            return
        waiting = {number for number, _ in self._undispatched}  # nobody has got them yet
        oldest: dict[int, Ticket] = {}
        for number in sorted(awaited):
            worker = self._scheduler.owner(number)
            if number not in waiting and worker not in self._gone:
                oldest.setdefault(worker, Ticket(worker, number, self._indices(number)))
        self._backend.is_asleep = True  # whatever is raised from here disturbs nothing
        self._lookout.look(self._backend, list(oldest.values()))
        self._backend.is_asleep = False

    def _begin_again(self, stuck: int) -> None:
        """Give up forked workers that inherited a locked lock; start others in their place."""
        if not self._rebirths:
            raise WorkerLostError(
                "PS604",
                f"worker {stuck} waits for a lock that nobody can release",
                why="it has one thread, which sleeps in a private futex without a deadline; "
                f"it has sample indices {_few(self._indices(self._scheduler.tickets_of(stuck)[0]))}",
                fix="pass multiprocessing_context='forkserver', or make the lock in the worker",
            )
        warnings.warn(_STUCK.format(stuck), stacklevel=6)
        shutdown.close(self._backend, is_final=False)
        self._backend = self._rebirths.popleft()()
        self._gone.clear()
        again = [number for worker in range(self._workers) for number in self._scheduler.lose(worker)]
        self._undispatched = deque((number, self._scheduler.owner(number)) for number in sorted(again))
        self._dispatch()

    def _hear(self, event: events.Event) -> None:
        if isinstance(event, events.Answered):
            if self._scheduler.fill(event.number, event.attempt):
                self._answers[event.number] = event.payload
            else:
                self._backend.discard(event.payload)
        elif isinstance(event, events.Exhausted):
            self._scheduler.exhaust(event.worker)
            self._plan()
        elif isinstance(event, events.WorkerLost):
            self._lose(event)

    def _lose(self, event: events.WorkerLost) -> None:
        self._gone[event.worker] = event  # it costs nothing until its turn comes

    def _refuse_the_dead(self) -> None:
        """Raise when only a worker that is gone could bring what comes next."""
        awaited = self._scheduler.awaited()
        owners = {self._scheduler.owner(number) for number in awaited}
        if awaited and owners <= self._gone.keys():
            number = min(awaited)
            raise worker_died(self._gone[self._scheduler.owner(number)], self._indices(number))

    def _rewind(self, shared_seed: int | None) -> None:
        """Wait until every worker is ready for the next epoch; drop what is left of the last one."""
        for payload in self._answers.values():
            self._backend.discard(payload)
        self._answers.clear()
        self._undispatched.clear()
        old, self._scheduler = (
            self._scheduler,
            Scheduler(self._workers, self._depth, in_order=self._in_order),
        )
        self._lookout.begin()
        self._backend.rewind(shared_seed)
        missing = set(range(self._workers))
        while missing and not self._gone:
            heard = self._backend.wait(self._step_s)
            self._look_at_late(missing if not heard else ())
            for event in heard:
                if isinstance(event, events.Answered):
                    self._backend.discard(event.payload)
                elif isinstance(event, events.Rewound):
                    missing.discard(event.worker)
                elif isinstance(event, events.WorkerLost):
                    self._gone[event.worker] = event
        for lost in self._gone.values():
            numbers = old.tickets_of(lost.worker)
            raise worker_died(lost, self._indices(numbers[0], old) if numbers else None)

    def _look_at_late(self, workers: Iterable[int]) -> None:
        late = [Ticket(worker, -1 - worker, None) for worker in workers]
        if late and self._lookout.is_on:  # what each is still at counts as a ticket of its own
            self._lookout.look(self._backend, late)

    # ---- words ----------------------------------------------------------------------------------

    def _indices(self, number: int, scheduler: Scheduler | None = None) -> Any:
        return (scheduler or self._scheduler).ledger.peek(number)[0].indices

    def _timed_out(self, timeout_s: float) -> WorkerLostError:
        busy = []
        for worker in range(self._workers):
            numbers = self._scheduler.tickets_of(worker)
            if numbers:
                busy.append(f"worker {worker} has sample indices {_few(self._indices(numbers[0]))}")
        return WorkerLostError(
            "PS602",
            f"DataLoader timed out after {timeout_s} seconds",
            why="; ".join(busy) or "no worker has work",
            fix="look for a network read or a lock in the dataset, or raise `timeout`",
        )


def worker_died(event: events.WorkerLost, indices: Any) -> WorkerLostError:
    """The error for a worker that is gone with work in its hands."""
    if event.pid == 0 and event.status > 0:
        return WorkerLostError(
            "PS603",
            f"workers cannot be started: the system refused to fork worker {event.worker}",
            why=f"errno {event.status}",
            fix="check free memory and the limit of processes (`ulimit -u`), or lower `num_workers`",
        )
    if event.reason == STALLED:
        what = "made no progress, and was ended"
    elif event.status < 0:
        what = f"is killed by signal: {signal.strsignal(-event.status)} ({_signal_name(-event.status)})"
    else:
        what = f"exited unexpectedly with exit code {event.status}"
    return WorkerLostError(
        "PS601",
        f"DataLoader worker {event.worker} (pid(s) {event.pid}) {what}",
        why="\n".join(["; ".join(_evidence(event, indices)), *stack_lines(event.stack)]),
        fix=_OOM_FIX if event.was_oom else _DIED_FIX,
    )


def _evidence(event: events.WorkerLost, indices: Any) -> Iterator[str]:
    if indices is not None:
        yield f"it was loading sample indices {_few(indices)}"
    if event.phase:
        yield where(event, indices)
    if event.was_oom:
        yield "the kernel has killed a process here for want of memory since the workers were started"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # most real-time signals have no name


def interrupted() -> WorkerLostError:
    """The error for an iterator that an exception has left in the middle of a step."""
    return WorkerLostError(
        "PS605",
        "this iterator was interrupted in the middle of a step and cannot go on",
        why="a signal handler raised an exception inside an earlier call of `next`",
        fix="call `iter(loader)` again; to limit the wait for a batch pass `timeout`, not an alarm",
    )


def foreign_process() -> SettingsError:
    """The error for an iterator that was inherited by a fork."""
    return SettingsError(
        "PS006",
        "this iterator belongs to the process that made it, and this is a fork of it",
        why="its workers and batches stay with the parent",
        fix="call `iter(loader)` in this process",
    )


def _few(indices: Any) -> str:
    if isinstance(indices, (list, tuple)) and len(indices) > 8:  # noqa: PLR2004 - what fits on a line
        return f"{', '.join(map(str, indices[:8]))}, … ({len(indices)} in all)"
    return str(indices)


_DIED_FIX = "load these samples at num_workers=0 to see the failure in the training process"
_OOM_FIX = "lower `num_workers`, `prefetch_factor` or `batch_size`, or raise the memory limit"
_STUCK = (
    "[PS604] worker {} inherited a lock that another thread held at the fork, and nobody can release it: "
    "all workers were started again, and no batch was lost. Pass multiprocessing_context='forkserver' "
    "to start from a clean process at once."
)
