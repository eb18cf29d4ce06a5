"""What becomes of a bad sample: one whose `__getitem__` raised, gave None, or killed its worker.

    decide(policy, exception type, tries)   ──▶  raise │ skip │ replace │ retry (after `pause_s`)
    over_budget(policy, drawn, bad)         ──▶  None, or why the run must stop

Guarantees:

* The class nearest to the exception's own decides, as with `except` clauses ordered from special to general.
* A sample is tried at most `retries` times more; what follows is never another retry.
* What replaces a sample depends on its index alone, so that it is the same whatever worker does it.

Pure: no clock, no process, no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock._base import settings
from penstock._base.words import Action

# Twice the pause for each further try, but nobody wants to wait longer than this for one sample.
LONGEST_PAUSE_S = 60.0
# Other indices that are tried in place of a bad one; with half of the dataset bad, all of them are bad once
# in 65,536 times.
MOST_REPLACEMENTS = 16


@dataclass(frozen=True)
class ErrorPolicy:
    """What to do about bad samples, and how many are too many.

    Args:
        default: "raise", "skip", "replace" or "retry", for exceptions that `by_type` does not name.
        by_type: actions for exception types and what derives from them; the nearest base class counts.
            A sample that is None counts as `penstock.errors.DataError`, one that killed its worker as
            `penstock.errors.WorkerLostError`.
        retries: how often a sample is tried again when its action is "retry".
        backoff: seconds before the first retry; twice as long before each further one, up to a minute.
        then: what follows when the last retry fails: "raise", "skip" or "replace".
        most: bad samples that one pass may have; None for no limit.
        most_rate: bad samples for each sample drawn that one pass may have, 0 to 1; None for no limit.
        probation: samples that a pass draws before `most_rate` counts.

    """

    default: Action = "raise"
    by_type: Mapping[type[BaseException], Action] = field(default_factory=dict, hash=False)
    retries: int = 3
    backoff: float = 0.1
    then: Action = "raise"
    most: int | None = None
    most_rate: float | None = None
    probation: int = 1000

    def __post_init__(self) -> None:
        settings.check_policy(vars(self))
        object.__setattr__(self, "by_type", dict(self.by_type))  # the caller's may change

    @property
    def can_skip(self) -> bool:
        """Whether some sample may be left out without another in its place."""
        return "skip" in {self.default, *self.by_type.values()} or (self.can_retry and self.then == "skip")

    @property
    def can_retry(self) -> bool:
        """Whether some sample may be tried again."""
        return "retry" in {self.default, *self.by_type.values()}

    @property
    def is_plain(self) -> bool:
        """Whether every bad sample raises, as in torch."""
        return {self.default, *self.by_type.values()} == {"raise"}


def policy_of(on_error: Any) -> ErrorPolicy:
    """The policy that the option `on_error` asks for."""
    if isinstance(on_error, ErrorPolicy):
        return on_error
    settings.check_on_error(on_error)
    return ErrorPolicy(on_error)


def decide(policy: ErrorPolicy, kind: type[BaseException], tries: int) -> Action:
    """What to do after the sample has failed `tries` times, the last time with this type of exception."""
    action: Action = policy.default
    for base in kind.__mro__:
        if base in policy.by_type:
            action = policy.by_type[base]
            break
    if action == "retry" and tries > policy.retries:
        return policy.then
    return action


def decide_untouched(policy: ErrorPolicy, kind: type[BaseException]) -> Action:
    """What to do about a sample that must not be tried at all: never "retry"."""
    return decide(policy, kind, policy.retries + 1)


def pause_s(policy: ErrorPolicy, tries: int) -> float:
    """Seconds to wait before a sample that failed `tries` times is tried again."""
    doublings = min(tries - 1, 64)  # beyond that no pause is shorter than the longest
    return float(min(policy.backoff * 2**doublings, LONGEST_PAUSE_S))


def over_budget(policy: ErrorPolicy, drawn: int, bad: int) -> str | None:
    """Why the pass must stop after `bad` bad samples of `drawn`, or None."""
    if policy.most is not None and bad > policy.most:
        return f"{bad} bad samples of {drawn} drawn are more than most={policy.most}"
    if policy.most_rate is not None and drawn >= policy.probation and bad > policy.most_rate * drawn:
        rate = f"{bad / drawn:.2%}"
        return f"{bad} bad samples of {drawn} drawn are {rate}, more than most_rate={policy.most_rate}"
    return None


def replacements(index: int, size: int) -> Iterator[int]:
    """Indices below `size` to try in place of this one: spread evenly, the same every time, never itself.

    Neighbours would be poor ones: what is broken is often broken in a row.
    """
    for attempt in range(MOST_REPLACEMENTS if size > 1 else 0):
        step = 1 + _mixed(index * MOST_REPLACEMENTS + attempt) % (size - 1)
        yield (index + step) % size


def _mixed(number: int) -> int:
    """Steele, Lea and Flood's splitmix64: neighbouring numbers become unrelated ones."""
    mask = (1 << 64) - 1
    number = (number + 0x9E3779B97F4A7C15) & mask
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & mask
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & mask
    return number ^ (number >> 31)


ErrorPolicy.__module__ = "penstock"
