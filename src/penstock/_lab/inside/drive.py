"""How far the program goes: our own loop in place of its own, or the word that it is enough.

drive="loader": at the first iter() of the chosen loader we go through it ourselves, drop each batch as it
comes, and end the process; if the plan is early, at the first iter() of any loader, where the chosen one is
made by then. drive="script": the program runs its own loop; when it has shown what the plan asks for, that is
said in the log, and whoever watches ends it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from typing import Any

from penstock._lab.inside import stored
from penstock._lab.inside.frames import failure
from penstock._lab.inside.observer import Context, Observer
from penstock._lab.inside.proc import Descriptors
from penstock._lab.inside.quiet import quiet

# A pass that was left early counts as an epoch when it was this long; shorter ones when there are this many.
LONG_PASS = 50
MANY_PASSES = 12
# A loader that was made may be used after the training: so long we wait for it, in shares of the time so far.
GRACE = 1.0
GRACE_S = 3.0
# After this share of the time a program is under way.
EARLY = 0.25


class Drive:
    """Decides for this process."""

    def __init__(self, observer: Observer, passes: Any) -> None:
        self._observer = observer
        self._passes = passes
        self._is_driving = False
        self._is_enough = False
        self._first: float | None = None
        self._epochs: Counter[str] = Counter()
        self._short: Counter[str] = Counter()
        self._since: Counter[str] = Counter()  # batches of a loader since its epochs were complete
        self._descriptors = Descriptors()
        self._due: float | None = None
        self._ends: deque[tuple[str, float]] = deque(maxlen=20)  # of epochs, by loader

    # ---- our own loop --------------------------------------------------------------------------

    def take_over(self, loader: Any, key: str, again: Any) -> None:
        """Go through the loader here, if the plan says so; then there is no way back."""
        plan = self._observer.plan
        if plan.drive != "loader" or self._is_driving or _is_worker():
            return
        if not self._is_meant(key):
            if not plan.is_early:
                return
            loader, key = self._observer.makings.beforehand.get(plan.loader), plan.loader or ""
        self._is_driving = True
        if loader is None:
            self._leave(0)  # it is made later: nothing is shown
        status = 1
        try:
            self._run(loader, key, again)
            status = 0
        except BaseException as error:  # noqa: BLE001 - the process ends here, whatever it was
            self._tell(error)
        self._leave(status)

    def _run(self, loader: Any, key: str, again: Any) -> None:
        plan = self._observer.plan
        stored = Stored(loader)
        began = time.monotonic()
        for _ in range(plan.epochs):
            iterator = again(loader)
            for number, batch in enumerate(iterator, 1):
                del batch
                if number == plan.max_batches or _is_over(began, plan.loader_s):
                    break
            del iterator  # its workers are shut down now, and that is timed
            stored.look()
            if _is_over(began, plan.loader_s):
                break
        self._observer.log.write("dataset", loader=key, **stored.past())
        kept = loader.__dict__.get("_iterator")
        if kept is not None:
            loader.__dict__["_iterator"] = None
            del kept

    def _tell(self, error: BaseException) -> None:
        if not isinstance(error, SystemExit):
            self._observer.log.write("failed", **failure(error), phase="program", is_fatal=True)
        error.__traceback__ = None

    def _leave(self, status: int) -> None:
        self._observer.log.write("program", how="driven", status=status)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:  # noqa: BLE001, S112 - closed, replaced
                continue
        os._exit(status)

    def broke(self, error: BaseException) -> None:
        """A pass has failed; nothing to do but to let it go."""

    # ---- the program's own loop ----------------------------------------------------------------

    def is_short(self, batches: int) -> bool:
        """Whether a pass of the program's own has been long enough."""
        most = self._observer.plan.short
        return most is not None and batches >= most and not self._is_driving and not _is_worker()

    def batch(self, context: Context) -> None:
        """A batch was handed to the program."""
        if self._is_enough or self._is_driving or _is_worker() or self._is_ahead:
            return
        now = time.monotonic()
        if self._first is None:
            self._first = now
        plan = self._observer.plan
        if self._is_meant(context.loader) and self._epochs_of(context.loader) >= plan.epochs:
            self._since[context.loader] += 1
            if self._since[context.loader] >= plan.extra_batches:
                self._complete(now)
        if plan.loader_s is not None:
            self._look_at_time(now - self._first, plan.loader_s, plan.late_s)

    @property
    def _is_ahead(self) -> bool:
        """Whether the loader of our own loop is still to come: what others take until then tells nothing."""
        return self._observer.plan.drive == "loader" and self._observer.plan.loader is not None

    def _look_at_time(self, seconds: float, enough_s: float, late_s: float) -> None:
        if seconds >= EARLY * enough_s:
            self._descriptors.remember()
        if seconds >= enough_s + late_s or (seconds >= enough_s and not self._is_more_to_come()):
            self._enough(f"{seconds:.0f} s of batches", is_by_time=True)

    def _is_more_to_come(self) -> bool:
        """Whether to wait: for a loader that was made and not used yet, a limit that is near, or a timer."""
        return bool(self._observer.makings.unused) or self._descriptors.run_out or _is_timer_set()

    def _is_meant(self, key: str) -> bool:
        """Whether the plan is about this loader: any, that one, or those that its line makes."""
        return self._observer.plan.loader in (None, key, key.rpartition("#")[0])

    def _epochs_of(self, key: str) -> int:
        """Epochs of a loader, those of its predecessors included: some programs make it anew for each one."""
        line, made = key.rpartition("#")[0], self._observer.makings.made_at.get(key, 0.0)
        before = [seen for seen, at in self._ends if at < made and seen.rpartition("#")[0] == line]
        return self._epochs[key] + len(before)

    def ended(self, context: Context, end: str, batches: int) -> None:
        """A pass has ended."""
        if end == "exhausted" or batches >= LONG_PASS:
            self._epochs[context.loader] += 1
            self._ends.append((context.loader, time.monotonic()))
        elif end == "dropped":
            self._short[context.loader] += 1
            if self._short[context.loader] == MANY_PASSES:
                self._epochs[context.loader] = max(self._epochs[context.loader], self._observer.plan.epochs)

    def _complete(self, now: float) -> None:
        """One loader has shown enough; wait a little for what is to come."""
        assert self._first is not None
        if now - self._first < self._observer.plan.min_s:
            return
        if self._due is None:
            self._due = now + max(GRACE_S, GRACE * (now - self._first))
        if now >= self._due or not self._is_more_to_come():
            self._enough("epochs complete")

    def _enough(self, why: str, *, is_by_time: bool = False) -> None:
        self._is_enough = True
        self._observer.log.write("enough", why=why, is_by_time=is_by_time)


class Stored:
    """What the dataset of a loader without workers stores, before our loop and after it."""

    def __init__(self, loader: Any) -> None:
        is_plain = not loader.num_workers and not getattr(loader, "_dataset_kind", 0)
        self._dataset = loader.dataset if is_plain else None
        self._before: dict[str, Any] = {}
        self._mutated: list[str] = []
        self._start()

    @quiet
    def _start(self) -> None:
        if self._dataset is not None:
            self._before = stored.contents(self._dataset)

    @quiet
    def look(self) -> None:
        """After a pass: what has another content than before the first."""
        self._mutated = stored.changed(self._before, self._dataset)

    def past(self) -> dict[str, Any]:
        """DatasetSeen's fields that only our own loop can tell."""
        if self._dataset is None:
            return {"mutated": [], "drifts": False}
        drifts = self._drifts()
        return {"mutated": self._mutated, "drifts": drifts, **stored.probe(self._dataset)}

    def _drifts(self) -> bool:
        if self._mutated:
            return stored.drifts(self._dataset)
        # What was opened only for the first sample was not there before: it is asked about now.
        now = stored.contents(self._dataset)
        if now.keys() <= self._before.keys():
            return False
        drifts = stored.drifts(self._dataset)
        self._mutated = stored.changed(now, self._dataset)
        return drifts and bool(self._mutated)


def _is_over(began: float, limit: float | None) -> bool:
    return limit is not None and time.monotonic() - began >= limit


def _is_timer_set() -> bool:
    """Whether the program means to do something before long, as one that leaves when its time is up."""
    waiting = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    return any(not each.finished.is_set() for each in waiting) or signal.getitimer(signal.ITIMER_REAL)[0] > 0


def _is_worker() -> bool:
    worker: Any = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and getattr(worker, "_worker_info", None) is not None
