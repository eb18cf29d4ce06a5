"""Indices to batch: the dataset's samples, then the collate function.

Does what torch's fetchers do, and also remembers where it is, so that a failure can name the sample.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterator
from operator import length_hint
from typing import Any

from torch.utils.data import default_collate
from torch.utils.data.dataloader import _DatasetKind

from penstock._engine.black_box import COLLATING, BlackBox
from penstock._engine.care import MISSING, Care
from penstock._engine.events import EMPTY
from penstock._engine.job import Job
from penstock._engine.rows import Rows
from penstock._engine.seeding import SampleSeeder, first_of
from penstock._engine.watch import Watch, WatchedItems, WatchedStream

# When samples take longer, each is told to the black box, which costs a hundredth of that.
SLOW_NS = 20_000


class Fetcher:
    """Makes batches for one worker and one epoch."""

    def __init__(
        self,
        job: Job,
        dataset: Any,
        rows: Rows | None = None,
        seeder: SampleSeeder | None = None,
        box: BlackBox | None = None,
    ) -> None:
        """`rows` takes large tensors out of samples as they come (see `rows`); `box` is told of progress.

        `seeder` is at the right epoch; an iterable dataset's stream has been seeded.
        """
        self._box = box
        self._is_told = False
        self._rows = rows if job.collate_fn is default_collate else None
        self._seeder = seeder if job.kind == _DatasetKind.Map else None
        self._dataset = dataset if self._seeder is None else self._seeder.wrap(dataset)
        self._job = job
        self._samples: list[Any] = []
        self._indices: Any = None
        self._rest: Iterator[Any] | None = None
        self._is_collating = False
        self._has_ended = False
        self._care = None if job.policy is None else Care(job, self._dataset, job.policy)
        self._ahead: list[Any] = []
        self._iterator: Any = iter(dataset) if job.kind == _DatasetKind.Iterable else None

    @property
    def bad(self) -> tuple[Any, ...]:
        """The bad samples of the last batch, as plain tuples."""
        return () if self._care is None else tuple(sample.as_tuple() for sample in self._care.bad)

    def fetch(self, indices: Any, condemned: Collection[int] = (), *, is_again: bool = False) -> Any:
        """The batch for these indices, or EMPTY. StopIteration: the iterable dataset has ended.

        With an error policy, samples at the positions `condemned` are bad without being touched. The black
        box is told of each sample when that costs nothing beside the samples themselves, or when the ticket
        was given before (`is_again`), and one of its samples may be at fault.
        """
        self._indices, self._samples, self._rest, self._is_collating = indices, [], None, False
        box = self._box
        if box is not None:
            count = len(indices) if type(indices) is list else 1
            self._is_told = is_again or box.pace_ns > SLOW_NS * count
        if self._care is not None:
            self._care.begin(self._tell if self._is_told else None)
        if self._iterator is not None:
            samples = self._from_iterator(indices)
        elif self._care is not None:
            samples = self._get_with_care(self._care, indices, condemned)
        else:
            samples = self._get(indices)
        if samples is EMPTY:
            return EMPTY
        self._is_collating = True
        if box is not None:
            box.phase(COLLATING)
        if self._seeder is not None:
            self._seeder.seed_collate(first_of(indices) if self._job.auto_collation else indices)
        return self._job.collate_fn(samples)

    def watch(self, watch: Watch) -> None:
        """Let the first samples be seen, as they are made."""
        if self._iterator is not None:
            self._iterator = WatchedStream(self._iterator, watch)
        else:
            self._dataset = WatchedItems(self._dataset, watch)

    def unwatch(self) -> None:
        """Take what watched out of the way."""
        if isinstance(self._iterator, WatchedStream):
            self._iterator = self._iterator.stream
        if isinstance(self._dataset, WatchedItems):
            self._dataset = self._dataset.dataset

    def look_ahead(self, watch: Watch) -> None:
        """Make the first samples now, to be seen; they are given out later."""
        assert self._iterator is not None
        self._iterator = watch.look_ahead(self._iterator)
        self._ahead = watch.ahead

    @property
    def is_ahead(self) -> bool:
        """Whether the dataset has made samples that were not given out yet."""
        return bool(self._ahead)

    def shard(self, first: int, step: int) -> None:
        """From here on, give out only the sample `first` of the stream and then each `step`-th."""
        assert self._iterator is not None
        self._iterator = itertools.islice(self._iterator, first, None, step)

    def skip(self, indices: Any) -> None:
        """Draw the samples of a batch and drop them, whatever becomes of them."""
        with contextlib.suppress(Exception):
            self._samples = []
            self._from_iterator(indices)
        self._samples = []

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
        if self._care is None and getattr(self._dataset, "__getitems__", None):
            return f"sample indices: {self._indices!r}"  # fetched together: which one failed is not known
        try:
            position = self._position()
            return f"sample index: {self._indices[position]!r} (position {position} in its batch)"
        except (IndexError, TypeError, KeyError):
            return ""

    def _position(self) -> int:
        """The position in the batch of the sample at which `fetch` failed; IndexError if it is not known."""
        if self._care is not None:
            return self._care.position
        if self._rest is None:
            return len(self._samples)
        position = len(self._indices) - 1 - length_hint(self._rest, len(self._indices))  # it has gone past it
        if position < 0:
            raise IndexError
        return position

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
            self._rest = iter(indices)
            self._samples = [
                dataset[index] for index in (self._telling(self._rest) if self._is_told else self._rest)
            ]
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

    def _get_with_care(self, care: Care, indices: Any, condemned: Collection[int]) -> Any:
        if not self._job.auto_collation:
            sample = care.sample(indices, is_condemned=0 in condemned)
            self._samples = [sample]
            return EMPTY if sample is MISSING else sample
        indices = self._indices = list(indices)
        start = 0
        if self._rows is not None:
            self._rows.begin(len(indices))
            start = len(indices)
            for sample in care.samples(indices, condemned):
                self._samples.append(self._rows.move(sample))
                if not self._rows.has_large and not getattr(self._dataset, "__getitems__", None):
                    start = care.position + 1
                    break
        if start < len(indices):
            care.fill(self._samples, indices, condemned, start)
        self._indices = care.kept
        return self._samples or EMPTY

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
        take = next if self._care is None else self._care.next_of
        if not self._job.auto_collation:
            self._tell(0, None)
            try:
                return take(self._iterator)
            except StopIteration:
                return self._end()
        samples = self._samples
        for _ in self._telling([None] * len(indices)) if self._is_told else indices:
            try:
                samples.append(take(self._iterator))
            except StopIteration:
                self._has_ended = True
                break
        if not samples or (self._job.drop_last and len(samples) < len(indices)):
            return self._end()
        return samples

    def _end(self) -> Any:
        """The end of the dataset; once more a batch, without samples, if there are bad ones to tell of."""
        if self._care is None or not self._care.bad:
            raise StopIteration
        self._has_ended = True
        return EMPTY
