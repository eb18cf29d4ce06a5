"""Which rungs of the ladder are worth their time. Pure.

    0 ──▶ the user's own number ──▶ 1 ──▶ 2 ──▶ 4 …

Zero comes first: a failure there is the dataset's own, and the ladder ends; what it loads is the reference
for every other rung. The user's own number says whether the loader alone shows the illness, without the
program's loop. The numbers between tell where it begins, or how speed grows, and are climbed only while they
can still tell something: not when all is well and nobody waits, and not above a rung that failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OK = "ok"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the ladder of one loader."""

    own: int  # num_workers as the program set it
    is_sick: bool = False  # the observed run failed, hung or lost something in this loader
    is_slow: bool = False  # the program waits for it, long enough to be worth a comparison
    cpus: int = 1
    quick: bool = False
    most: int | None = None  # the user's limit

    @property
    def top(self) -> int:
        """The highest rung: the user's own number, and where the program waits as many as there are CPUs."""
        highest = max(self.own, self.cpus) if self.is_slow else self.own
        return highest if self.most is None else min(highest, self.most)


def next_rung(question: Question, seen: Mapping[int, str]) -> int | None:
    """The number of workers to try next, given the outcomes so far; None when enough is known."""
    if 0 not in seen:
        return 0
    if seen[0] != OK or not (question.is_sick or question.is_slow):
        return None
    if question.own not in seen and _is_allowed(question, question.own):
        return question.own
    if question.quick:
        return None
    return _climb(question, seen)


def _is_allowed(question: Question, workers: int) -> bool:
    return question.most is None or workers <= question.most


def _climb(question: Question, seen: Mapping[int, str]) -> int | None:
    """The lowest rung between that is not known yet and can tell something."""
    if not question.is_slow and seen.get(question.own, OK) == OK:
        return None  # the loader alone is well: fewer workers will be too
    for workers in steps(question.top):
        outcome = seen.get(workers)
        if outcome is None:
            return workers
        if outcome != OK:
            return None  # more of them will not be better
    return None


def steps(top: int) -> tuple[int, ...]:
    """1, 2, 4 … and the top itself."""
    found = []
    workers = 1
    while workers < top:
        found.append(workers)
        workers *= 2
    return (*found, top) if top > 0 else ()
