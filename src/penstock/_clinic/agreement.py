"""Whether workers load the same samples as the program does without them: by index and content. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from penstock._clinic.facts import Facts
from penstock._lab.record import SampleSeen, Trial


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many samples of workers could be compared, and which differ."""

    checked: int = 0
    wrong: tuple[Any, ...] = ()  # indices, in the order in which they were met

    @property
    def share(self) -> float:
        """Of the samples that differ."""
        return len(self.wrong) / self.checked if self.checked else 0.0


def agreement(facts: Facts, key: str) -> Agreement:
    """Compare what workers loaded, in every trial as the program is, with the rung without workers."""
    zero = facts.at(key, 0)
    if zero is None or facts.has_ranks:  # whose samples are whose would be a guess
        return Agreement()
    reference = _by_index(zero, key)
    checked, wrong = 0, []
    for trial in facts.trials:
        for sample in _of_workers(trial, key):
            expected = reference.get(_hashable(sample.index))
            if expected is None or len(expected) != 1:  # not loaded there, or another each time
                continue
            checked += 1
            if sample.digest not in expected:
                wrong.append(sample.index)
    return Agreement(checked, tuple(wrong))


def _by_index(trial: Trial, key: str) -> dict[Any, set[str]]:
    found: defaultdict[Any, set[str]] = defaultdict(set)
    for sample in trial.samples:
        if sample.loader == key and sample.digest and sample.index is not None:
            found[_hashable(sample.index)].add(sample.digest)
    return found


def _of_workers(trial: Trial, key: str) -> list[SampleSeen]:
    if trial.plan.change.mends or trial.plan.change.patched or trial.plan.change.use_penstock:
        return []
    return [each for each in trial.samples if each.loader == key and each.worker >= 0 and each.digest]


def _hashable(index: Any) -> Any:
    return tuple(index) if isinstance(index, list) else index
