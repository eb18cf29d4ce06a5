"""Indices to batch: the dataset's samples, then the collate function.

Does what torch's fetchers do, and also remembers where it is, so that a failure can name the sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import default_collate
from torch.utils.data.dataloader import _DatasetKind

from penstock._engine.black_box import COLLATING, BlackBox
from penstock._engine.job import Job
from penstock._engine.rows import Rows

# When samples take longer, each is told to the black box, which costs a hundredth of that.
SLOW_NS = 20_000


class Fetcher:
    """Makes batches for one worker and one epoch."""

    def __init__(self, job: Job, dataset: Any, rows: Rows | None = None, box: BlackBox | None = None) -> None:
        """`rows` takes large tensors out of samples as they come (see `rows`); `box` is told of progress."""
        self._box = box
        self._is_told = False
        self._rows = rows if job.collate_fn is default_collate else None
        self._dataset = dataset
        self._job = job
        self._samples: list[Any] = []
        self._indices: Any = None
        self._is_collating = False
        self._has_ended = False
        self._iterator = iter(dataset) if job.kind == _DatasetKind.Iterable else None

    def fetch(self, indices: Any, *, is_again: bool = False) -> Any:
        """The batch for these indices. StopIteration: the iterable dataset has ended.

        The black box is told of each sample when that costs nothing beside the samples themselves, or when
        the ticket was given before (`is_again`), and one of its samples may be at fault.
        """
        self._indices, self._samples, self._is_collating = indices, [], False
        box = self._box
        if box is not None:
            count = len(indices) if type(indices) is list else 1
            self._is_told = is_again or box.pace_ns > SLOW_NS * count
        samples = self._from_iterator(indices) if self._iterator is not None else self._get(indices)
        self._is_collating = True
        if box is not None:
            box.phase(COLLATING)
        return self._job.collate_fn(samples)

    def forget(self) -> None:
        """Drop the samples of the last batch."""
        self._samples = []
        if self._rows is not None:
            self._rows.end()

    def where(self) -> str:
        """The sample at which the last `fetch` failed, in words."""
        if self._is_collating:
            from penstock._engine.odd_sample import describe_odd

            return describe_odd(self._samples, self._indices)
        if self._iterator is not None:
            return ""
        if not self._job.auto_collation:
            return f"sample index: {self._indices!r}"
        if getattr(self._dataset, "__getitems__", None):
            return f"sample indices: {self._indices!r}"  # fetched together: which one failed is not known
        position = len(self._samples)
        try:
            return f"sample index: {self._indices[position]!r} (position {position} in its batch)"
        except (IndexError, TypeError, KeyError):
            return ""

    def _get(self, indices: Any) -> Any:
        dataset = self._dataset
        if not self._job.auto_collation:
            self._tell(0, indices)
            sample = dataset[indices]
            self._samples = [sample]
            return sample
        if getattr(dataset, "__getitems__", None):
            self._samples = dataset.__getitems__(indices)
            return self._samples
        append = self._samples.append
        wanted = self._telling(indices) if self._is_told else indices
        if self._rows is None or not hasattr(indices, "__len__"):
            for index in wanted:
                append(dataset[index])
        else:
            self._rows.begin(len(indices))
            rest = iter(wanted)
            for index in rest:
                append(self._rows.move(dataset[index]))
                if not self._rows.has_large:
                    break
            for index in rest:
                append(dataset[index])
        return self._samples

    def _tell(self, position: int, index: Any) -> None:
        if self._is_told and self._box is not None:
            self._box.at(position, index)

    def _telling(self, indices: Any) -> Iterator[Any]:
        for position, index in enumerate(indices):
            self._tell(position, index)
            yield index

    def _from_iterator(self, indices: Any) -> Any:
        assert self._iterator is not None
        if self._has_ended:
            raise StopIteration
        if not self._job.auto_collation:
            self._tell(0, None)
            return next(self._iterator)
        samples = self._samples
        for _ in self._telling([None] * len(indices)) if self._is_told else indices:
            try:
                samples.append(next(self._iterator))
            except StopIteration:
                self._has_ended = True
                break
        if not samples or (self._job.drop_last and len(samples) < len(indices)):
            raise StopIteration
        return samples
