"""Wires the stages of one iterator: carries events to the scheduler, carries out what it decides.

Guarantees:

* Tickets are drawn from the sampler when torch draws them: `workers * depth` at the start of an
  epoch, then one for each batch handed out, so that samplers with side effects behave the same.
* Nothing waits for ever: every wait wakes when a worker dies, and at the user's `timeout`.
* A worker that dies costs time, not data: a successor does its tickets again (NOTE [ A worker dies ]

  1. What it had answered before counts. Its other tickets go back into the ledger with the next attempt
     number, so that nothing which arrives late can be taken for an answer.
  2. `restart` says when a successor may start: at once, later, or never. The zygote forks it; it has the
     same number, takes over the tickets in their order, and draws fresh random numbers.
  3. `suspect` is told at which sample it happened. A sample that is proved to kill is *condemned*: the ticket
     is done without it under the error policy, or is answered by an error that names it.
  4. If the zygote is gone too, all workers are: another zygote is born, and all that was out is done again.

An iterable dataset knows by itself where it was: a worker gets a successor only if `resume` can tell where to
go on. When there is none, the error comes when the lost ticket's turn comes, not before.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from penstock._engine import events, mistakes, shutdown
from penstock._engine.black_box import Report
from penstock._engine.lookout import Lookout, Ticket
from penstock._engine.messages import Spawn
from penstock._engine.obituary import few, worker_died
from penstock._engine.restart import Restarts
from penstock._engine.resume import Journal, Resume
from penstock._engine.scheduler import Scheduler
from penstock._engine.stall import Observation
from penstock._engine.suspect import Suspects
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

    def rewind(self, shared_seed: int | None, epoch: int, attributes: tuple[Any, ...]) -> None:
        """Begin the next epoch in every worker, with these new values of the dataset's attributes."""

    def judge(self, worker: int, *, is_sharded: bool) -> None:
        """Tell a worker how to go on with the stream that it has told of."""

    def find_stuck(self, workers: list[int]) -> int | None:
        """One of these workers that provably waits for what can never come, or None."""

    # Of backends that lose workers:

    @property
    def is_gone(self) -> bool:
        """Whether no worker can be started here any more."""

    def respawn(self, order: Spawn) -> None:
        """Start a successor of a worker that is gone."""

    def condemn(self, number: int, position: int) -> None:
        """Have this sample of a ticket left out when the ticket is sent again."""

    def observe(self, worker: int) -> Observation | None:
        """What can be seen of a worker from outside; None when nothing can."""

    def report(self, worker: int) -> Report:
        """What a worker says that it is doing. For what can be observed only."""

    def ask_stack(self, worker: int) -> str:
        """A worker's Python stack, or nothing if it does not answer soon. For what can be observed only."""

    def kill(self, worker: int, reason: str) -> None:
        """End a worker; its `WorkerLost` gives the reason. For what can be observed only."""


class Recovery(NamedTuple):
    """What may be done when workers are lost. By default nothing: that is an error."""

    again: Callable[[], Backend] | None = None  # begins again when all workers are gone
    rebirths: tuple[Callable[[], Backend], ...] = ()  # tried in turn when workers prove to be stuck
    max_restarts: int = 0
    raises_on_bad: bool = True  # a sample that kills is an error, not left out
    lookout: Lookout | None = None  # for workers without progress


class Judge(Protocol):
    """Who keeps count of bad samples, as the runtime needs it."""

    def begin(self) -> None:
        """An epoch begins."""

    def note(self, indices: Any, bad: Iterable[Any]) -> None:
        """The batch of these indices is delivered; raises when too many samples were bad."""


class Runtime:
    """The engine of one iterator."""

    def __init__(
        self,
        backend: Backend,
        *,
        workers: int,
        depth: int,
        in_order: bool,
        recovery: Recovery | None = None,
        judge: Judge | None = None,
    ) -> None:
        """`judge` is told of each batch that is delivered and of the bad samples in it."""
        self._backend = backend
        self._recovery = recovery or Recovery()
        self._rebirths = deque(self._recovery.rebirths)
        self._restarts = Restarts(self._recovery.max_restarts)
        self._suspects = Suspects()
        self._absent: dict[int, float] = {}  # workers that are gone, and when their successors start
        self._lives = [0] * workers
        self._hopeless: dict[int, WorkerLostError] = {}  # why a worker has no successor
        self._epoch: tuple[int | None, int] = (None, 0)  # what a successor must know of it
        self._lookout = self._recovery.lookout or Lookout()
        self._step_s = self._lookout.step_s(LOOK_S)
        self._workers = workers
        self._depth = depth
        self._in_order = in_order
        self._sampler: Iterator[Any] = iter(())
        self._scheduler = Scheduler(workers, depth, in_order=in_order)
        self._answers: dict[int, Any] = {}
        self._undispatched: deque[tuple[int, int]] = deque()
        self._judge = judge
        self._bad: dict[int, tuple[Any, ...]] = {}  # bad samples of answers
        self._gone: dict[int, events.WorkerLost] = {}
        self.is_closed = False
        self.is_torn = False
        self._user = threading.get_ident()
        self.mistakes: mistakes.Mistakes | None = (
            None  # the judge of what workers tell of their first samples
        )
        self.journal: Journal | None = None  # of an iterable dataset
        self.attributes: tuple[
            Any, ...
        ] = ()  # all new values that persistent workers were sent, oldest first

    def begin(
        self,
        sampler: Iterator[Any],
        *,
        is_first: bool,
        shared_seed: int | None,
        epoch: int = 0,
        attributes: tuple[Any, ...] = (),
    ) -> None:
        """Start an epoch over what the sampler yields; `attributes` of the dataset have new values."""
        self.is_torn = True
        self._epoch = (shared_seed, epoch)
        try:
            if not is_first:
                self._rewind(shared_seed, epoch, attributes)
            if self._judge is not None:
                self._judge.begin()
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
            # What was ready when all was closed is no longer there.
            number = None if self.is_closed else self._scheduler.next_ready()
            if number is not None:
                batch = self._deliver(number)
                if batch is not events.EMPTY:
                    return batch
                continue
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
            self._drop_answers()
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
        waiting: list[tuple[int, int]] = []
        while self._undispatched:
            number, worker = self._undispatched[0]
            # Else void, or nobody will do it: `_refuse_the_dead` says so when its turn comes.
            if number in ledger and worker not in self._gone:
                if worker in self._absent:
                    waiting.append((number, worker))
                else:
                    ticket, attempt = ledger.peek(number)
                    if not self._backend.send(worker, number, attempt, ticket.indices):
                        break
                    ledger.assign(number)
            self._undispatched.popleft()
        if waiting:
            self._undispatched.extendleft(reversed(waiting))

    def _deliver(self, number: int) -> Any:
        self.is_torn = True
        payload = self._answers.pop(number)
        indices = self._indices(number) if self._judge is not None else None
        self._scheduler.deliver(number)
        try:
            self._plan()
            if self._judge is not None:
                self._judge.note(indices, self._bad.pop(number, ()))
            self.is_torn = False
            return self._open(payload)
        except BaseException as error:  # the sampler's, the worker's, or one that came from outside
            self._discard(payload)
            self.is_torn &= not isinstance(error, PenstockError)
            raise

    # ---- events ---------------------------------------------------------------------------------

    def _advance(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s if timeout_s else None
        step_s = self._step_s
        left = timeout_s or step_s
        while not (heard := self._backend.wait(self._shortened(min(left, step_s)))):
            if self._absent and self._replace_absent():
                return
            if deadline is not None and (left := deadline - time.monotonic()) <= 0:
                raise self._timed_out(timeout_s)
            busy = [worker for worker in range(self._workers) if self._scheduler.tickets_of(worker)]
            stuck = self._backend.find_stuck(busy)
            if stuck is not None:
                self._give_up_stuck(stuck)
                continue
            self._look(self._scheduler.awaited())
        backend = self._backend
        for event in heard:
            if self._backend is backend or not isinstance(event, events.WorkerLost):
                self._hear(event)

    def _look(self, awaited: Iterable[int]) -> None:
        """Look at the workers that hold up the consumer; see `lookout`."""
        if not self._lookout.is_on:
            return
        waiting = {number for number, _ in self._undispatched}  # nobody has got them yet
        oldest: dict[int, Ticket] = {}
        for number in sorted(awaited):
            worker = self._scheduler.owner(number)
            if number not in waiting and worker not in self._gone and worker not in self._absent:
                oldest.setdefault(worker, Ticket(worker, number, self._indices(number)))
        self._backend.is_asleep = True  # whatever is raised from here disturbs nothing
        self._lookout.look(self._backend, list(oldest.values()))
        self._backend.is_asleep = False

    def _hear(self, event: events.Event) -> None:
        if isinstance(event, events.Answered):
            if self._scheduler.fill(event.number, event.attempt):
                self._answers[event.number] = event.payload
                if event.bad:
                    self._bad[event.number] = event.bad
                self._restarts.answered(event.worker)
                self._suspects.answered(event.number)
                if self.journal is not None:
                    self.journal.answered(event.worker, event.state)
            else:
                self._backend.discard(event.payload)
        elif isinstance(event, events.Exhausted):
            self._scheduler.exhaust(event.worker)
            self._plan()
        elif isinstance(event, events.WorkerLost):
            self._lose(event)
        else:
            self._notice(event)

    def _notice(self, event: events.Event) -> None:
        if isinstance(event, events.Noticed) and self.mistakes is not None:
            self._pronounce(self.mistakes.hear(mistakes.told_by(event.signs)))

    def _pronounce(self, verdicts: list[tuple[int, bool]]) -> None:
        for worker, is_sharded in verdicts:
            self._backend.judge(worker, is_sharded=is_sharded)

    # ---- deaths ---------------------------------------------------------------------------------

    def _lose(self, event: events.WorkerLost) -> None:
        worker = event.worker
        numbers = sorted(self._scheduler.tickets_of(worker))
        if event.reason == events.RETIRED:
            wait_s: float | None = 0.0  # nothing has gone wrong
        else:
            wait_s = self._restarts.lost(worker, is_unborn=not event.pid)
        if wait_s is None or not self._can_go_on(event, numbers):
            self._give_up(event)
            return
        if self._backend.is_gone:
            assert self._recovery.again is not None
            self._begin_again(self._recovery.again)
            return
        self._take_back(worker)
        self._absent[worker] = time.monotonic() + wait_s
        self._replace_absent()

    def _can_go_on(self, event: events.WorkerLost, numbers: list[int]) -> bool:
        """Whether a successor could do what this worker had to do."""
        if self.journal is None:
            if numbers and event.reason != events.RETIRED:
                self._suspect(numbers[0], event)
            return not self._backend.is_gone or self._recovery.again is not None
        if not numbers:
            return not self._backend.is_gone
        try:
            self._resume_of(event.worker)
        except WorkerLostError as error:
            self._hopeless[event.worker] = error
            return False
        verdict = self._suspects.lost(numbers[0], None, event.status)
        return not (verdict.is_hopeless or self._backend.is_gone)

    def _give_up(self, event: events.WorkerLost) -> None:
        self._gone[event.worker] = event  # it costs nothing until its turn comes
        if self.mistakes is not None:
            self._pronounce(self.mistakes.lose(event.worker))

    def _resume_of(self, worker: int) -> Resume | None:
        """Where the successor takes up the stream of an iterable dataset; None for others."""
        numbers = self._scheduler.tickets_of(worker)
        if self.journal is None or not numbers:
            return None
        is_sharded = self.mistakes is not None and bool(self.mistakes.is_sharded)
        return self.journal.plan(worker, self._indices(numbers[0]), is_sharded=is_sharded)

    def _suspect(self, number: int, event: events.WorkerLost) -> None:
        """Ask whether a sample of the ticket that was in hand is the cause."""
        position = event.position if event.number == number else None
        verdict = self._suspects.lost(number, position, event.status)
        if verdict.is_hopeless or (verdict.condemned is not None and self._recovery.raises_on_bad):
            self._answer(number, worker_died(event, self._indices(number), position=verdict.condemned))
        elif verdict.condemned is not None:
            self._backend.condemn(number, verdict.condemned)

    def _answer(self, number: int, error: PenstockError) -> None:
        """Answer a ticket by an error, which is raised when its turn comes."""
        ledger = self._scheduler.ledger
        ledger.lose(number)
        _, attempt = ledger.assign(number)
        self._scheduler.fill(number, attempt)
        self._answers[number] = error
        self._suspects.answered(number)

    def _take_back(self, worker: int) -> None:
        """Plan the tickets of a worker that is gone once more, in their order, for its successor."""
        again = {(number, worker) for number in self._scheduler.lose(worker)}
        self._undispatched = deque(sorted(again | set(self._undispatched)))

    def _replace_absent(self) -> bool:
        """Start the successors whose time has come; whether there were any."""
        now = time.monotonic()
        due = [worker for worker, when in self._absent.items() if when <= now]
        for worker in due:
            del self._absent[worker]
            self._lives[worker] += 1
            resume = self._resume_of(worker)
            self._backend.respawn(
                Spawn(
                    worker,
                    self._lives[worker],
                    *self._epoch,
                    None if resume is None else tuple(resume),
                    self.attributes,
                )
            )
        if due:
            self._dispatch()
        return bool(due)

    def _shortened(self, wait_s: float) -> float:
        """The wait, or less if a successor is to start before its end."""
        if not self._absent:
            return wait_s
        return max(0.0, min(wait_s, min(self._absent.values()) - time.monotonic()))

    def _give_up_stuck(self, stuck: int) -> None:
        """Give up forked workers that inherited a locked lock; start others in their place."""
        if not self._rebirths:
            raise WorkerLostError(
                "PS604",
                f"worker {stuck} waits for a lock that nobody can release",
                why="it has one thread, which sleeps in a private futex without a deadline; "
                f"it has sample indices {few(self._indices(self._scheduler.tickets_of(stuck)[0]))}",
                fix="pass multiprocessing_context='forkserver', or make the lock in the worker",
            )
        warnings.warn(_STUCK.format(stuck), stacklevel=6)
        self._begin_again(self._rebirths.popleft())

    def _begin_again(self, rebirth: Callable[[], Backend]) -> None:
        """Replace all workers, and have everything that is out done again."""
        shutdown.close(self._backend, is_final=False)
        self._backend = rebirth()
        self._gone.clear()
        self._absent.clear()
        for worker in range(self._workers):
            self._take_back(worker)
        self._dispatch()

    def _refuse_the_dead(self) -> None:
        """Raise when only a worker that is gone could bring what comes next."""
        awaited = self._scheduler.awaited()
        owners = {self._scheduler.owner(number) for number in awaited}
        if awaited and owners <= self._gone.keys():
            number = min(awaited)
            worker = self._scheduler.owner(number)
            died = worker_died(self._gone[worker], self._indices(number))
            if worker in self._hopeless:
                raise self._hopeless[worker] from died
            raise died

    def _rewind(self, shared_seed: int | None, epoch: int, attributes: tuple[Any, ...]) -> None:
        """Wait until every worker is ready for the next epoch; drop what is left of the last one."""
        self._drop_answers()
        self._bad.clear()
        self._undispatched.clear()
        old, self._scheduler = (
            self._scheduler,
            Scheduler(self._workers, self._depth, in_order=self._in_order),
        )
        self._suspects = Suspects()
        self._begin_memories()
        self._lookout.begin()
        self.attributes += attributes
        backend = self._backend
        backend.rewind(shared_seed, epoch, attributes)
        missing = set(range(self._workers)) - self._absent.keys()  # a successor begins with the new epoch
        while missing and not self._gone and self._backend is backend:
            heard = backend.wait(self._shortened(self._step_s))
            self._look_at_late(missing if not heard else ())
            for event in heard:
                self._hear_rewinding(event, missing, backend)
        for lost in self._gone.values():
            numbers = old.tickets_of(lost.worker)
            raise worker_died(lost, self._indices(numbers[0], old) if numbers else None)

    def _drop_answers(self) -> None:
        for payload in self._answers.values():
            self._discard(payload)
        self._answers.clear()

    def _open(self, payload: Any) -> Any:
        if isinstance(payload, PenstockError):
            raise payload
        return self._backend.open(payload)

    def _discard(self, payload: Any) -> None:
        if not isinstance(payload, PenstockError):
            self._backend.discard(payload)

    def _hear_rewinding(self, event: events.Event, missing: set[int], backend: Backend) -> None:
        if isinstance(event, events.Answered):
            backend.discard(event.payload)
        elif self._backend is not backend:
            return  # it speaks of workers that were replaced
        elif isinstance(event, events.Noticed):
            if event.worker not in missing:  # else it speaks of the epoch before
                self._notice(event)
        elif not isinstance(event, events.Exhausted):  # that one speaks of the epoch before
            missing.discard(event.worker)
            if isinstance(event, events.WorkerLost):
                self._lose(event)

    def _begin_memories(self) -> None:
        for memory in (self.journal, self.mistakes):
            if memory is not None:
                memory.begin()

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
                busy.append(f"worker {worker} has sample indices {few(self._indices(numbers[0]))}")
        return WorkerLostError(
            "PS602",
            f"DataLoader timed out after {timeout_s} seconds",
            why="; ".join(busy) or "no worker has work",
            fix="look for a network read or a lock in the dataset, or raise `timeout`",
        )


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


_STUCK = (
    "[PS604] worker {} inherited a lock that another thread held at the fork, and nobody can release it: "
    "all workers were started again, and no batch was lost. Pass multiprocessing_context='forkserver' "
    "to start from a clean process at once."
)
