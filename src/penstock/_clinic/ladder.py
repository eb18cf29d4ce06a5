"""Which rungs of the ladder are worth their time. Pure.

    0 ──▶ the user's own number ──▶ 1 ──▶ 2 ──▶ 4 …

Zero comes first: a failure there is the dataset's own, and the ladder ends; what it loads is the reference
for everything else. With the user's own number the program was observed already, so that this rung is climbed
only for its speed, where the program waits; and then also as many workers as there are CPUs, if the user has
more, and one, if a lock may let no more than one work. All numbers between tell where an illness begins, if
a limit of the machine is reached. Nothing is climbed above a rung that failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OK = "ok"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the ladder of one loader."""

    own: int  # num_workers as the program set it
    is_slow: bool = False  # the program waits for it, long enough to be worth a comparison
    has_lock: bool = False  # its workers share a lock
    where_it_begins: bool = False  # it is sick, and fewer workers may not be
    cpus: int = 1
    quick: bool = False
    most: int | None = None  # the user's limit

    @property
    def between(self) -> tuple[int, ...]:
        """The rungs besides zero and the user's own that may tell something, lowest first."""
        if self.quick:
            return ()
        if self.where_it_begins:
            return tuple(workers for workers in steps(self.own) if workers != self.own)
        asked = [(1, self.has_lock), (self.cpus, True)]
        return tuple(dict.fromkeys(workers for workers, is_asked in asked if is_asked and workers < self.own))


def next_rung(question: Question, seen: Mapping[int, str]) -> int | None:
    """The number of workers to try next, given the outcomes so far; None when enough is known."""
    if 0 not in seen:
        return 0
    # A program that goes well, and slowly, may need its workers: they may open what the dataset reads.
    if not question.is_slow and (seen[0] != OK or not question.where_it_begins):
        return None
    if question.is_slow and question.own not in seen and _is_allowed(question, question.own):
        return question.own
    for workers in question.between:
        if not _is_allowed(question, workers) or seen.get(workers, OK) != OK:
            return None  # more of them will not be better
        if workers not in seen:
            return workers
    return None


def _is_allowed(question: Question, workers: int) -> bool:
    return question.most is None or workers <= question.most


def steps(top: int) -> tuple[int, ...]:
    """1, 2, 4 … and the top itself."""
    found = []
    workers = 1
    while workers < top:
        found.append(workers)
        workers *= 2
    return (*found, top) if top > 0 else ()
