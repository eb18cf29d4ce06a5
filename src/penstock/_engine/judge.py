"""Bad samples, when their batch is delivered: recorded, put into quarantine, and counted.

Guarantees:

* A sample counts when its batch is due, not when a worker met it: counts follow the order of delivery, and
  what was fetched ahead and thrown away does not count.
* The budget of the policy is for one pass; samples that the quarantine file named beforehand are recorded,
  but cost nothing of it.

Runs on the consumer's thread.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from penstock._engine.bad_samples import IN_QUARANTINE, BadSample, BadSamples
from penstock._engine.policy import ErrorPolicy, over_budget
from penstock._engine.quarantine import Quarantine
from penstock.errors import DataError, WorkerLostError

_TOLD = 3  # samples of which the error tells more than the index
_LISTED = 8


class Judge:
    """Keeps the books of one loader and stops a pass that has too many bad samples."""

    def __init__(
        self, policy: ErrorPolicy, errors: BadSamples, quarantine: Quarantine | None, *, is_batched: bool
    ) -> None:
        self._is_batched = is_batched
        self._policy = policy
        self._errors = errors
        self._quarantine = quarantine
        self._drawn = 0
        self._bad: list[BadSample] = []  # the first of this pass
        self._count = 0

    def begin(self) -> None:
        """A pass begins."""
        self._drawn, self._count, self._bad = 0, 0, []

    def note(self, indices: Any, bad: Iterable[Any]) -> None:
        """The batch of these indices is due; raise when too many were bad."""
        self._drawn += len(indices) if self._is_batched and hasattr(indices, "__len__") else 1
        samples = [BadSample(*each) for each in bad]
        for sample in samples:
            self._errors.add(sample)
            if sample.exception != IN_QUARANTINE:
                self._count += 1
                if len(self._bad) < _LISTED:
                    self._bad.append(sample)
        if samples and self._quarantine is not None:
            self._lock_away(self._quarantine, samples)
        reason = over_budget(self._policy, self._drawn, self._count)
        if reason is not None:
            raise self._too_many(reason)

    def _lock_away(self, quarantine: Quarantine, samples: list[BadSample]) -> None:
        try:
            quarantine.add(samples)
        except OSError as refused:
            # A full disk must not cost the run; the samples are in `loader.errors` all the same.
            text = _NOT_WRITTEN.format(str(quarantine.path), refused.strerror)
            warnings.warn(text, RuntimeWarning, stacklevel=7)

    def _too_many(self, reason: str) -> DataError:
        listed = ", ".join(str(sample.index) for sample in self._bad)
        told = "; ".join(map(_tell, self._bad[:_TOLD]))
        return DataError(
            "PS505",
            f"too many bad samples: {reason}",
            why=f"the first are at indices {listed}{', …' if self._count > len(self._bad) else ''} ({told})",
            fix="look at `loader.errors`; repair the samples, or raise the limit in ErrorPolicy",
        )


def _tell(sample: BadSample) -> str:
    first_line = ascii(sample.message.partition("\n")[0])[
        1:-1
    ]  # a dataset's text must not reach a terminal raw
    return f"index {sample.index}: {sample.exception}: {first_line}"


def killers(errors: BadSamples) -> frozenset[int | str]:
    """Indices that have killed a worker: another pass need not lose one to know it."""
    name = WorkerLostError.__name__
    return frozenset(each.index for each in errors if each.exception == name and each.index is not None)


_NOT_WRITTEN = (
    "[PS508] the quarantine file {!r} could not be written: {}. The bad samples are in `loader.errors`, "
    "and the run goes on."
)
