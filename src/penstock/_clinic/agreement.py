"""Whether workers load the same samples as the program does without them: by index and content. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from penstock._clinic.facts import Facts
from penstock._lab.record import SampleSeen, Trial

# More than that differ in a dataset with random augmentation, which says nothing of what workers share ...
_STILL_DETERMINISTIC = 0.5
# ... unless so many samples were loaded more than once without workers, and each was the same each time.
_ENOUGH_TWICE = 20


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many samples of workers could be compared, and which differ."""

    checked: int = 0
    wrong: tuple[Any, ...] = ()  # indices, in the order in which they were met
    is_random: bool = True  # whether samples may differ by chance, as far as the reference pass tells

    @property
    def is_wrong(self) -> bool:
        """Whether workers load other samples, and chance does not explain it."""
        return bool(self.wrong) and (not self.is_random or self.share <= _STILL_DETERMINISTIC)

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
    return Agreement(checked, tuple(wrong), _is_random(zero, key, reference))


def _is_random(zero: Trial, key: str, reference: dict[Any, set[str]]) -> bool:
    loads = Counter(_hashable(each.index) for each in zero.samples if each.loader == key and each.digest)
    twice = [index for index, times in loads.items() if times > 1 and index in reference]
    return len(twice) < _ENOUGH_TWICE or any(len(reference[index]) > 1 for index in twice)


def _by_index(trial: Trial, key: str) -> dict[Any, set[str]]:
    found: defaultdict[Any, set[str]] = defaultdict(set)
    for sample in trial.samples:
        if sample.loader == key and sample.digest and sample.index is not None:
            found[_hashable(sample.index)].add(sample.digest)
    return found


def _of_workers(trial: Trial, key: str) -> list[SampleSeen]:
    """Of the first pass: before the next one the program may tell its dataset something new."""
    if trial.plan.change.mends or trial.plan.change.patched or trial.plan.change.use_penstock:
        return []
    first = (each for each in trial.samples if each.loader == key and each.iterator == 0)
    return [each for each in first if each.worker >= 0 and each.digest]


def _hashable(index: Any) -> Any:
    return tuple(index) if isinstance(index, list) else index
