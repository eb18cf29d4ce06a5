"""What the contents of samples tell: the same index read twice, the same content from two workers. Pure.

Random augmentation is no fault: an index is compared only where its content can be had again. Contents are
known by their digests; an empty digest means that nobody could read the sample.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock._clinic.facts import Facts
from penstock._lab.record import SampleSeen, Trial

Reading = dict[str, str]  # by index: digest of the first time it was read in one pass


@dataclass(frozen=True, slots=True)
class Compared:
    """Two readings held against each other."""

    both: int = 0  # indices that are in both
    differ: int = 0
    example: str = ""  # an index that differs

    @property
    def share(self) -> float:
        """Of what is in both, what differs."""
        return self.differ / self.both if self.both else 0.0


def keyed(index: Any) -> str:
    """An index as a key: it may be a list, a tuple, anything that a sampler gives."""
    return repr(tuple(index) if isinstance(index, list) else index)


def samples(trial: Trial, key: str) -> list[SampleSeen]:
    """The samples of one loader that could be read, in the order of the log."""
    return [seen for seen in trial.samples if seen.loader == key and seen.digest]


def readings(trial: Trial, key: str, part: int | None = None) -> list[Reading]:
    """One reading for each pass over a loader, in order; with `part`, of the field at that place alone."""
    found: dict[int, Reading] = defaultdict(dict)
    for seen in samples(trial, key):
        digest = seen.digest if part is None else _of_part(seen, part)
        if digest:
            found[seen.iterator].setdefault(keyed(seen.index), digest)
    return [found[number] for number in sorted(found)]


def _of_part(seen: SampleSeen, part: int) -> str:
    return seen.parts[part] if part < len(seen.parts) else ""


def compare(one: Reading, other: Reading) -> Compared:
    """Hold two readings against each other."""
    both = [index for index in one if index in other]
    differ = [index for index in both if one[index] != other[index]]
    return Compared(len(both), len(differ), differ[0] if differ else "")


def random_share(facts: Facts, key: str) -> float | None:
    """Of the indices that were read more than once, in any trial, those that gave different contents.

    None where nothing was read twice.
    """
    known: dict[str, set[str]] = defaultdict(set)
    times: dict[str, int] = defaultdict(int)
    for trial in facts.trials:
        for reading in readings(trial, key):
            for index, digest in reading.items():
                known[index].add(digest)
                times[index] += 1
    twice = [index for index, count in times.items() if count > 1]
    return sum(len(known[index]) > 1 for index in twice) / len(twice) if twice else None


def recurring_share(facts: Facts, key: str) -> float | None:
    """Of the contents of a stream, those that come again in another pass, in whichever place.

    Order may be left to chance where contents are not. None where there is but one pass.
    """
    passes = [set(reading.values()) for trial in facts.trials for reading in _streamed(trial, key)]
    if len(passes) < 2:  # noqa: PLR2004 - two of them are compared
        return None
    # The larger of two passes is the one in which the other's contents must be.
    *others, largest = sorted(passes, key=len)
    return max(len(each & largest) / len(each) for each in others)


def _streamed(trial: Trial, key: str) -> list[dict[Any, str]]:
    found: dict[int, dict[Any, str]] = defaultdict(dict)
    for seen in samples(trial, key):
        found[seen.iterator][seen.worker, keyed(seen.index)] = seen.digest
    return list(found.values())


def streams(trial: Trial, key: str, number: int) -> dict[int, Reading]:
    """By worker: what it made in one pass, by its number in that worker (some may have gone unseen)."""
    found: dict[int, Reading] = defaultdict(dict)
    for seen in samples(trial, key):
        if seen.iterator == number and seen.worker >= 0:
            found[seen.worker][keyed(seen.index)] = seen.digest
    return dict(found)


def distinct_share(digests: Iterable[str]) -> float:
    """Of some samples, those with a content of their own."""
    all_of_them = list(digests)
    return len(set(all_of_them)) / len(all_of_them) if all_of_them else 0.0
