"""Samples one by one, when the loader has an error policy: what is bad is left out, replaced or tried again.

    index ─▶ known to be bad? ─no─▶ dataset[index] ─▶ sample
                  │yes                    │ exception, or None
                  ▼                       ▼
               decide ◀────────────── decide ─▶ retry: wait, try again
                  │
                  ├─▶ raise     the exception, as it is
                  ├─▶ skip      MISSING: the batch is smaller by one
                  └─▶ replace   the first good one of a few other indices; if none is good, as skip

Guarantees:

* Every sample that is left out or replaced is in `bad`, once, with its own index. Other indices that were
  tried in its place and failed are not: they have their own turn.
* What must not be touched (in quarantine, or known to kill its worker) is not touched, also not to replace
  another.
* The end of a stream is not taken for an end when it is a generator that a bad sample has finished: the
  exception is raised.

Runs in the worker.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from torch.utils.data import get_worker_info

from penstock._engine.bad_samples import IN_QUARANTINE, BadSample, describe, key_of, plain_index
from penstock._engine.job import Job
from penstock._engine.policy import (
    MOST_REPLACEMENTS,
    ErrorPolicy,
    decide,
    decide_untouched,
    pause_s,
    replacements,
)
from penstock.errors import DataError, WorkerLostError

# A stream that fails so often without one good sample in between will not recover.
MOST_IN_A_ROW = 100

MISSING = object()


class Care:
    """Fetches for one worker and one epoch, by the policy of its job."""

    def __init__(self, job: Job, dataset: Any, policy: ErrorPolicy) -> None:
        self._job = job
        self._dataset = dataset
        self._policy = policy
        self._known: set[Any] = set()  # indices that failed before in this epoch
        self.bad: list[BadSample] = []  # of the batch being made
        self.kept: list[Any] = []  # indices of its samples, replacements included
        self.position = 0
        self._tell: Callable[[int, Any], None] | None = None

    def begin(self, tell: Callable[[int, Any], None] | None = None) -> None:
        """Another batch follows; `tell` is called with position and index before each sample."""
        self.bad, self.kept, self.position, self._tell = [], [], 0, tell

    # ---- map-style ------------------------------------------------------------------------------

    def fill(
        self, samples: list[Any], indices: list[Any], condemned: Collection[int], start: int = 0
    ) -> None:
        """Append the good samples of these indices, from position `start` on."""
        if self._fetches_many or self._tell or not self._may_all_be_touched(indices, condemned):
            samples.extend(self.samples(indices, condemned, start))
            return
        dataset, append = self._dataset, samples.append
        while True:
            before, error = len(samples), None
            try:
                # Nothing but the sample itself: while all is well, this loop is all that a policy costs.
                for index in islice(indices, start, None):
                    sample = dataset[index]
                    if sample is None:
                        break
                    append(sample)
            except Exception as raised:  # noqa: BLE001 - what a dataset raises is for the policy
                error = raised
            good = indices[start : start + len(samples) - before]
            self.kept += good
            self.position = start + len(good)
            if self.position == len(indices):
                return
            index = indices[self.position]
            others = _others(indices, self.position, condemned)
            sample = self._settle(index, others, error or _is_none(index))
            if sample is not MISSING:
                append(sample)
            start = self.position + 1

    def samples(self, indices: list[Any], condemned: Collection[int], start: int = 0) -> Iterator[Any]:
        """The good samples of these indices, from position `start` on, as they come."""
        fetched = self._together(indices, condemned)
        for self.position in range(start, len(indices)):
            index = indices[self.position]
            if self.position in fetched:
                self.kept.append(index)
                yield fetched[self.position]
                continue
            others = _others(indices, self.position, condemned)
            sample = self.sample(index, others, is_condemned=self.position in condemned)
            if sample is not MISSING:
                yield sample

    def sample(self, index: Any, others: Iterable[Any] = (), *, is_condemned: bool = False) -> Any:
        """One sample, or MISSING; raises what the policy does not let pass. `others` may replace it."""
        refused = self._refused(index, is_condemned=is_condemned)
        if refused is not None:
            return self._untouched(index, others, refused)
        sample, error = self._try(index)
        if error is not None:
            return self._settle(index, others, error)
        self.kept.append(index)
        return sample

    def _settle(self, index: Any, others: Iterable[Any], error: Exception) -> Any:
        """What becomes of a sample that has failed once with this exception."""
        tries = 1
        while (action := decide(self._policy, type(error), tries)) == "retry":
            time.sleep(pause_s(self._policy, tries))
            tries += 1
            sample, failed = self._try(index)
            if failed is None:
                self.kept.append(index)
                return sample
            error = failed
        return self._part_with(index, others, error, action, tries)

    @property
    def _fetches_many(self) -> bool:
        return bool(getattr(self._dataset, "__getitems__", None))

    def _may_all_be_touched(self, indices: list[Any], condemned: Collection[int]) -> bool:
        """Whether none of these is refused; may say no when in doubt."""
        refused = self._job.quarantined | self._job.condemned
        if not refused:
            return not condemned
        # Numbers of numpy or torch need not be equal to what they stand for.
        return not condemned and set(map(type, indices)) <= {int, str} and refused.isdisjoint(indices)

    def _together(self, indices: list[Any], condemned: Collection[int]) -> dict[int, Any]:
        """Samples by position, from a dataset that fetches many at once; none when that fails."""
        if not self._fetches_many or self._tell is not None:
            return {}
        places = [
            place
            for place, index in enumerate(indices)
            if self._refused(index, is_condemned=place in condemned) is None
        ]
        try:
            samples = list(self._dataset.__getitems__([indices[place] for place in places])) if places else []
        except Exception:  # noqa: BLE001 - whose fault it is shows when each is fetched alone
            return {}
        if len(samples) != len(places):
            return {}
        return {place: sample for place, sample in zip(places, samples, strict=True) if sample is not None}

    def _try(self, index: Any) -> tuple[Any, Exception | None]:
        if self._tell is not None:
            self._tell(self.position, index)
        try:
            if self._fetches_many:
                (sample,) = self._dataset.__getitems__([index])
            else:
                sample = self._dataset[index]
        except Exception as error:  # noqa: BLE001 - what a dataset raises is for the policy
            return None, error
        return sample, _is_none(index) if sample is None else None

    def _refused(self, index: Any, *, is_condemned: bool) -> Exception | None:
        """Why this index must not be touched, or None."""
        plain = plain_index(index)
        if is_condemned or plain in self._job.condemned:
            return WorkerLostError("PS601", f"sample index {index!r} killed its worker")
        if plain in self._job.quarantined:
            return _Quarantined()
        return None

    def _untouched(self, index: Any, others: Iterable[Any], refused: Exception) -> Any:
        if not isinstance(refused, _Quarantined):
            action = decide_untouched(self._policy, type(refused))
            return self._part_with(index, others, refused, action, 0)
        action = decide_untouched(self._policy, DataError)
        return self._part_with(index, others, refused, "skip" if action == "raise" else action, 0)

    def _part_with(self, index: Any, others: Iterable[Any], error: Exception, action: str, tries: int) -> Any:
        self._known.add(plain_index(index))
        sample = self._replacement(index, others) if action == "replace" else MISSING
        if action == "replace" and sample is MISSING:
            action = "skip"
        self._note(error, index, tries, action)
        if action == "raise":
            raise error
        return sample

    def _replacement(self, index: Any, others: Iterable[Any]) -> Any:
        plain = plain_index(index)
        size = self._job.pool
        indices = replacements(plain % size, size) if size and isinstance(plain, int) else iter(others)
        for other in islice(indices, MOST_REPLACEMENTS):
            name = plain_index(other)
            if name in self._known or self._refused(other, is_condemned=False) is not None:
                continue
            sample, error = self._try(other)
            if error is None:
                self.kept.append(other)
                return sample
            self._known.add(name)
        return MISSING

    # ---- streams --------------------------------------------------------------------------------

    def next_of(self, stream: Iterator[Any]) -> Any:
        """The next good sample of a stream; StopIteration at its end."""
        last: Exception | None = None
        for _ in range(MOST_IN_A_ROW):
            try:
                sample = next(stream)
            except StopIteration:
                if last is None or not _left_a_generator(last):
                    raise
                break  # not the end: the generator is finished, the data is not
            except Exception as error:  # noqa: BLE001 - what a dataset raises is for the policy
                last = error
            else:
                if sample is not None:
                    return sample
                last = _is_none(None)
            # The same record cannot be asked for again; the next one takes its place.
            action = decide_untouched(self._policy, type(last))
            self._note(last, None, 1, action)
            if action == "raise":
                raise last
        assert last is not None
        self.bad[-1] = replace(self.bad[-1], action="raise")
        raise last from None

    # ---- records --------------------------------------------------------------------------------

    def _note(self, error: Exception, index: Any, tries: int, action: str) -> None:
        info = get_worker_info()
        record = describe(
            error,
            worker=0 if info is None else info.id,
            index=plain_index(index),
            key=None if index is None else key_of(self._dataset, index),
            attempt=tries,
            time=time.time(),
            action=action,
        )
        if isinstance(error, _Quarantined):
            record = replace(record, exception=IN_QUARANTINE, traceback="")
        elif error.__traceback__ is None:  # nothing was raised: the message says it all
            record = replace(record, message=_what(error), traceback="")
        self.bad.append(record)


class _Quarantined(Exception):  # noqa: N818 - never raised: it stands for a sample nobody touched
    def __init__(self) -> None:
        super().__init__("named by the quarantine file")


def _is_none(index: Any) -> DataError:
    which = "a record of the stream" if index is None else f"the sample at index {index!r}"
    return DataError(
        "PS506",
        f"{which} is None",
        why="the dataset returned None, which cannot be batched",
        fix='return a sample or raise; pass on_error="skip" to leave such samples out',
    )


def _others(indices: list[Any], position: int, condemned: Collection[int]) -> Iterator[Any]:
    """The other indices of the batch that may be touched, from the next one on and round."""
    for place in (*range(position + 1, len(indices)), *range(position)):
        if place not in condemned:
            yield indices[place]


def _what(error: Exception) -> str:
    return str(getattr(error, "what", "") or error)


def _left_a_generator(error: Exception) -> bool:
    """Whether the exception came out of a generator, which is finished by that."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_flags & inspect.CO_GENERATOR:
            return True
        trace = trace.tb_next
    return False
