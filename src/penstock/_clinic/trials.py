"""The trials of one exam: run within a budget of time, and remembered.

    exam, conduct ── Plan ──▶ Trials ──▶ _lab.trial.run ──▶ Trial
                                 └── every trial so far: a second one like it is not run again

What it costs to get to a loader (imports, the program's own preparation) is learned from the observed run, so
that nothing is begun that cannot be ended in time.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from penstock._lab.plan import Change, Plan
from penstock._lab.record import Trial


class Run(Protocol):
    """Runs a target once, as the plan says; ends it when `stop` is set."""

    def __call__(self, target: Any, plan: Plan, *, stop: threading.Event) -> Trial: ...


Say = Callable[[str], None]

# Seconds that a trial may take beyond preparation and batches: a stall must be seen and looked at.
GRACE_S = 14.0
# What a trial costs at least beyond preparation: start of the child, end of it, reading its log.
OVERHEAD_S = 1.0
# Before anything is known: the import of torch.
IMPORT_S = 3.5
# Trials at the same time, where no speed is measured and nothing is scarce.
ABREAST = 2


class Trials:
    """Runs trials of one target and keeps them, in the order in which they ended."""

    def __init__(self, run: Run, target: Any, budget_s: float, say: Say) -> None:
        self._run, self._target, self._say = run, target, say
        self._clock = time.monotonic
        self._began = self._clock()
        self._budget_s = budget_s
        self.done: list[Trial] = []
        self.prepare_s = IMPORT_S
        self.notes: list[str] = []
        self._own: dict[str, dict[str, Any]] = {}
        self._reached: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-aside")
        self._aside: Future[Trial | None] | None = None
        self._stop = threading.Event()

    @property
    def seconds(self) -> float:
        """Since the exam began."""
        return self._clock() - self._began

    @property
    def left_s(self) -> float:
        """Until the exam must end."""
        return max(0.0, self._budget_s - self.seconds)

    def cost_s(self, plan: Plan) -> float:
        """What a trial that goes well takes, at most."""
        return self._prepare_s(plan) + (plan.loader_s or 0.0) + OVERHEAD_S

    def _prepare_s(self, plan: Plan) -> float:
        """What comes before batches: a loader for validation is reached later than one for training."""
        if plan.drive != "loader" or plan.short is not None:
            return self.prepare_s
        return self._reached.get(plan.loader or "", self.prepare_s)

    def has_time(self, plan: Plan, *, times: int = 1, reserve_s: float = 0.0) -> bool:
        """Whether so many trials like this fit into what is left."""
        return times * self.cost_s(plan) + reserve_s <= self.left_s

    def run(self, plan: Plan, sentence: str) -> Trial | None:
        """Run a trial; None when there is no time for it, or when it could not be run."""
        if not self.has_time(plan):
            self.notes.append(f"not done, for lack of time: {sentence}")
            return None
        self._say(sentence)
        most = self._prepare_s(plan) * 2 + (plan.loader_s or 0.0) + plan.late_s + GRACE_S
        return self._bounded(plan, sentence, min(most, plan.max_s))

    def observe(self, plan: Plan, sentence: str) -> Trial | None:
        """Run the program as it is, for as long as the plan says: the first trial of an exam."""
        self._say(sentence)
        return self._bounded(plan, sentence, plan.max_s)

    def abreast(self, asked: Sequence[tuple[Plan, str]], *, at_once: int = ABREAST) -> list[Trial | None]:
        """Run several trials, some at the same time: for what no speed is read from."""
        if at_once <= 1 or len(asked) <= 1:
            return [self.run(plan, sentence) for plan, sentence in asked]
        with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="penstock-exam") as pool:
            try:
                return list(pool.map(lambda each: self.run(*each), asked))
            except BaseException:
                self._stop.set()  # else the pool would wait for their usual end
                raise

    def aside(self, plan: Plan, sentence: str) -> None:
        """Begin a trial that is wanted later, beside those that come now; only one at a time."""
        if self._aside is None:
            self._aside = self._pool.submit(self.run, plan, sentence)

    def rejoin(self) -> None:
        """Wait for the trial that was begun aside; then it is among those that are done."""
        if self._aside is not None:
            self._aside.result()
        self._aside = None

    def close(self) -> None:
        """Let nothing run on."""
        self._stop.set()
        self._pool.shutdown()

    def _bounded(self, plan: Plan, sentence: str, most_s: float) -> Trial | None:
        try:
            left_s = self.left_s
            max_s = min(most_s, left_s)
            extra_s = min(plan.extra_s, left_s - max_s)  # the exam ends in time on a busy machine too
            bounded = dataclasses.replace(plan, max_s=max_s, extra_s=extra_s)
            trial = self._run(self._target, bounded, stop=self._stop)
        except Exception as error:  # noqa: BLE001 - whatever a trial does, the exam goes on
            self.notes.append(f"not done: {sentence}: {type(error).__name__}: {error}")
            return None
        # Asked for by the first plan, so that a later one like it is recognised.
        trial = dataclasses.replace(trial, plan=dataclasses.replace(plan, log=trial.plan.log))
        self.done.append(trial)
        return trial

    def learn(self, observed: Trial) -> None:
        """Take from the observed run how long the program needs to its first loader, and its settings."""
        first = min((seen.began_s for seen in observed.iterators), default=None)
        if first:
            self.prepare_s = max(1.0, first)
        for each in reversed(observed.iterators):
            self._reached[each.loader] = max(1.0, each.began_s)
        for seen in observed.loaders:
            self._own.setdefault(seen.key, seen.settings)
            self._own.setdefault(seen.key.rpartition("#")[0], seen.settings)

    def like(self, plan: Plan) -> list[Trial]:
        """Trials so far with the same drive, loader and changes, newest last."""
        return [trial for trial in self.done if self._is_like(trial, plan)]

    def _is_like(self, trial: Trial, plan: Plan) -> bool:
        other = trial.plan
        if other.drive != plan.drive or other.short != plan.short:
            return False
        one, two = self.effective(other), self.effective(plan)
        if one != two:
            return False
        # The program as it is is the same whichever loader was meant; a driven loader is not.
        return other.loader == plan.loader or (plan.drive == "script" and not one)

    def effective(self, plan: Plan) -> Change:
        """A plan's change without options that the loader has anyway."""
        own = self._own.get(plan.loader or "", {})
        settings = plan.change.settings
        kept = {name: value for name, value in settings.items() if name not in own or own[name] != value}
        return dataclasses.replace(plan.change, settings=kept)
