"""Samples one by one: left out, replaced, tried again; and streams that go on or cannot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, default_collate
from torch.utils.data.dataloader import _DatasetKind

from penstock._arena.segment import Segment
from penstock._arena.slab import SlabWriter
from penstock._engine import care as module
from penstock._engine.events import EMPTY
from penstock._engine.fetch import Fetcher
from penstock._engine.job import Job
from penstock._engine.policy import ErrorPolicy, replacements
from penstock._engine.rows import LARGE, Rows
from penstock.errors import DataError, WorkerLostError

MAP = Job(_DatasetKind.Map, None, True, list, False, 0, None, 1, None, "forked", policy=ErrorPolicy("skip"))
STREAM = replace(MAP, kind=_DatasetKind.Iterable)
FIELDS = ("index", "exception", "attempt", "action")


class Tens:
    """Sample i is 10 * i; those in `bad` raise, those in `none` are None."""

    def __init__(self, bad=(), none=(), flaky=None):
        self.bad, self.none, self.flaky = set(bad), set(none), dict(flaky or {})
        self.touched = []

    def __getitem__(self, index):
        self.touched.append(index)
        if index in self.bad:
            raise ValueError(f"bad {index}")
        if self.flaky.get(index, 0) > 0:
            self.flaky[index] -= 1
            raise ConnectionError("try again")
        return None if index in self.none else 10 * index


class Many(Tens):
    """The same, fetched together."""

    def __init__(self, **options):
        super().__init__(**options)
        self.calls = []

    def __getitems__(self, indices):
        self.calls.append(list(indices))
        return [self[index] for index in indices]


def fetched(dataset, indices, condemned=(), **changes):
    """A batch, and its bad samples in short."""
    fetcher = Fetcher(replace(MAP, **changes), dataset)
    batch = fetcher.fetch(indices, condemned)
    return batch, short(fetcher)


def short(fetcher):
    return [(bad[0], bad[2], bad[6], bad[8]) for bad in fetcher.bad]


@pytest.fixture
def pauses(monkeypatch):
    """What was slept, in seconds; nobody sleeps."""
    slept = []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    return slept


# ---- skip ---------------------------------------------------------------------------------------


def test_a_bad_sample_is_left_out():
    assert fetched(Tens(bad=[2]), [1, 2, 3]) == ([10, 30], [(2, "ValueError", 1, "skip")])


def test_none_is_a_bad_sample():
    assert fetched(Tens(none=[2]), [1, 2]) == ([10], [(2, "DataError", 1, "skip")])


def test_a_sample_that_is_none_says_so():
    fetcher = Fetcher(MAP, Tens(none=[2]))
    fetcher.fetch([2])
    assert fetcher.bad[0][3:5] == ("the sample at index 2 is None", "")


def test_a_batch_of_bad_samples_is_empty():
    batch, bad = fetched(Tens(bad=[1, 2]), [1, 2])
    assert batch is EMPTY
    assert [each[0] for each in bad] == [1, 2]


def test_bad_samples_are_those_of_the_last_batch():
    fetcher = Fetcher(MAP, Tens(bad=[1]))
    fetcher.fetch([1, 2])
    fetcher.fetch([2, 3])
    assert fetcher.bad == ()


def test_without_a_policy_nothing_is_kept():
    fetcher = Fetcher(replace(MAP, policy=None), Tens())
    fetcher.fetch([1, 2])
    assert fetcher.bad == ()


def test_stop_iteration_is_a_bad_sample():
    class Stops:
        def __getitem__(self, index):
            raise StopIteration

    assert fetched(Stops(), [1])[1] == [(1, "StopIteration", 1, "skip")]


def test_a_sample_without_batches_is_left_out():
    batch, bad = fetched(Tens(bad=[2]), 2, auto_collation=False)
    assert batch is EMPTY
    assert bad == [(2, "ValueError", 1, "skip")]
    assert fetched(Tens(), 2, auto_collation=False, collate_fn=str) == ("20", [])


def test_indices_may_come_from_an_iterator():
    assert fetched(Tens(bad=[1]), iter([1, 2])) == ([20], [(1, "ValueError", 1, "skip")])


# ---- raise --------------------------------------------------------------------------------------


def test_what_the_policy_does_not_name_raises_and_is_recorded():
    fetcher = Fetcher(replace(MAP, policy=ErrorPolicy(by_type={OSError: "skip"})), Tens(bad=[2]))
    with pytest.raises(ValueError, match=r"^bad 2$"):
        fetcher.fetch([1, 2, 3])
    assert fetcher.where() == "sample index: 2 (position 1 in its batch)"
    assert short(fetcher) == [(2, "ValueError", 1, "raise")]


def test_the_place_is_right_after_a_sample_was_left_out():
    policy = ErrorPolicy(by_type={ValueError: "skip"})
    fetcher = Fetcher(replace(MAP, policy=policy), Tens(bad=[1], flaky={5: 1}))
    with pytest.raises(ConnectionError):
        fetcher.fetch([1, 2, 5])
    assert fetcher.where() == "sample index: 5 (position 2 in its batch)"


def test_a_none_that_raises_says_which():
    with pytest.raises(DataError) as caught:
        fetched(Tens(none=[2]), [2], policy=ErrorPolicy())
    assert str(caught.value) == (
        "[PS506] the sample at index 2 is None\n"
        "  why:  the dataset returned None, which cannot be batched\n"
        '  fix:  return a sample or raise; pass on_error="skip" to leave such samples out\n'
        "  more: penstock explain PS506"
    )


def test_a_collate_that_fails_names_the_right_sample():
    class Ragged:
        def __getitem__(self, index):
            if index == 1:
                raise ValueError
            return torch.zeros(3 if index == 8 else 2)

    fetcher = Fetcher(replace(MAP, collate_fn=torch.stack), Ragged())
    with pytest.raises(RuntimeError):
        fetcher.fetch([1, 4, 8])
    assert fetcher.where().startswith("sample index: 8 (position 1 in its batch) does not fit")
    assert short(fetcher) == [(1, "ValueError", 1, "skip")]


# ---- retry --------------------------------------------------------------------------------------


def test_a_sample_that_recovers_is_not_bad(pauses):
    policy = ErrorPolicy("retry", retries=3, backoff=0.5)
    assert fetched(Tens(flaky={2: 2}), [1, 2], policy=policy) == ([10, 20], [])
    assert pauses == [0.5, 1.0]


def test_after_the_retries_comes_what_follows(pauses):
    policy = ErrorPolicy("retry", retries=2, then="skip")
    dataset = Tens(bad=[2])
    assert fetched(dataset, [1, 2], policy=policy) == ([10], [(2, "ValueError", 3, "skip")])
    assert dataset.touched == [1, 2, 2, 2]
    assert len(pauses) == 2


def test_the_last_exception_decides(pauses):
    dataset = Tens(flaky={2: 1}, bad=[])
    dataset.none = {2}
    policy = ErrorPolicy("raise", {ConnectionError: "retry", DataError: "skip"})
    assert fetched(dataset, [2], policy=policy)[1] == [(2, "DataError", 2, "skip")]


# ---- replace ------------------------------------------------------------------------------------


def test_a_replacement_comes_from_the_whole_dataset():
    other = next(replacements(2, 100))
    batch, bad = fetched(Tens(bad=[2]), [1, 2, 3], policy=ErrorPolicy("replace"), pool=100)
    assert batch == [10, 10 * other, 30]
    assert bad == [(2, "ValueError", 1, "replace")]


def test_a_bad_replacement_is_passed_over_and_not_recorded():
    first, second = list(replacements(2, 100))[:2]
    batch, bad = fetched(Tens(bad=[2, first]), [2], policy=ErrorPolicy("replace"), pool=100)
    assert batch == [10 * second]
    assert bad == [(2, "ValueError", 1, "replace")]


def test_a_replacement_is_not_sought_among_what_is_known_to_be_bad():
    first = next(replacements(2, 100))
    dataset = Tens(bad=[2, first])
    fetcher = Fetcher(replace(MAP, policy=ErrorPolicy("replace"), pool=100), dataset)
    fetcher.fetch([first])
    dataset.touched.clear()
    fetcher.fetch([2])
    assert first not in dataset.touched


@pytest.mark.parametrize("known", ["quarantined", "condemned"])
def test_what_must_not_be_touched_replaces_nothing(known):
    first = next(replacements(2, 100))
    dataset = Tens(bad=[2])
    job = replace(MAP, policy=ErrorPolicy("replace"), pool=100, **{known: frozenset([first])})
    Fetcher(job, dataset).fetch([2])
    assert first not in dataset.touched


def test_without_a_pool_the_next_of_the_batch_is_taken():
    batch, bad = fetched(Tens(bad=[5, 7]), [5, 7, 9], policy=ErrorPolicy("replace"))
    assert batch == [90, 90, 90]
    assert [each[3] for each in bad] == ["replace", "replace"]


def test_without_any_replacement_the_sample_is_skipped():
    batch, bad = fetched(Tens(bad=range(100)), [2, 3], policy=ErrorPolicy("replace"), pool=100)
    assert batch is EMPTY
    assert [each[3] for each in bad] == ["skip", "skip"]


def test_a_sample_without_batches_is_replaced_from_the_pool():
    other = next(replacements(2, 100))
    found = fetched(
        Tens(bad=[2]), 2, auto_collation=False, collate_fn=str, policy=ErrorPolicy("replace"), pool=100
    )
    assert found == (str(10 * other), [(2, "ValueError", 1, "replace")])


# ---- untouched ----------------------------------------------------------------------------------


def test_what_is_in_quarantine_is_not_touched():
    dataset = Tens()
    assert fetched(dataset, [1, 2], quarantined=frozenset([2])) == ([10], [(2, "Quarantined", 0, "skip")])
    assert dataset.touched == [1]


def test_what_is_in_quarantine_is_skipped_even_where_others_raise():
    found = fetched(Tens(), [1, 2], quarantined=frozenset([2]), policy=ErrorPolicy())
    assert found == ([10], [(2, "Quarantined", 0, "skip")])


def test_what_is_in_quarantine_is_replaced_by_a_policy_that_replaces():
    policy = ErrorPolicy("retry", then="replace")
    found = fetched(Tens(), [1, 2], quarantined=frozenset([2]), policy=policy)
    assert found == ([10, 10], [(2, "Quarantined", 0, "replace")])


def test_a_condemned_position_is_not_touched():
    dataset = Tens()
    found = fetched(dataset, [7, 8, 9], condemned=(1,))
    assert found == ([70, 90], [(8, "WorkerLostError", 0, "skip")])
    assert dataset.touched == [7, 9]


def test_a_condemned_sample_says_why():
    fetcher = Fetcher(MAP, Tens())
    fetcher.fetch([7, 8], (1,))
    assert fetcher.bad[0][3:5] == ("sample index 8 killed its worker", "")


def test_a_condemned_sample_is_a_lost_worker_to_the_policy():
    policy = ErrorPolicy("skip", {WorkerLostError: "raise"})
    with pytest.raises(WorkerLostError, match="sample index 8 killed its worker"):
        fetched(Tens(), [7, 8], condemned=(1,), policy=policy)


def test_a_condemned_sample_without_batches():
    batch, bad = fetched(Tens(), 8, condemned=(0,), auto_collation=False)
    assert batch is EMPTY
    assert bad == [(8, "WorkerLostError", 0, "skip")]


def test_a_condemned_position_replaces_nothing():
    dataset = Tens(bad=[7])
    found = fetched(dataset, [7, 8, 9], condemned=(1,), policy=ErrorPolicy("replace"))
    assert found[0] == [90, 90, 90]
    assert 8 not in dataset.touched


# ---- fetched together ---------------------------------------------------------------------------


def test_samples_are_fetched_together_while_all_is_well():
    dataset = Many()
    assert fetched(dataset, [1, 2, 3]) == ([10, 20, 30], [])
    assert dataset.calls == [[1, 2, 3]]


def test_when_together_fails_each_is_fetched_alone():
    dataset = Many(bad=[2])
    assert fetched(dataset, [1, 2, 3]) == ([10, 30], [(2, "ValueError", 1, "skip")])
    assert dataset.calls == [[1, 2, 3], [1], [2], [3]]


def test_a_none_among_many_is_fetched_again_alone():
    dataset = Many(none=[2])
    assert fetched(dataset, [1, 2, 3]) == ([10, 30], [(2, "DataError", 1, "skip")])
    assert dataset.calls == [[1, 2, 3], [2]]


def test_what_must_not_be_touched_is_left_out_of_the_call():
    dataset = Many()
    found = fetched(dataset, [1, 2, 3], condemned=(0,), quarantined=frozenset([3]))
    assert found[0] == [20]
    assert dataset.calls == [[2]]


def test_an_order_is_kept():
    dataset = Many(none=[2])
    found = fetched(dataset, [1, 2, 3], policy=ErrorPolicy("replace"))
    assert found[0] == [10, 30, 30]


def test_many_are_fetched_once_beside_a_slab():
    dataset, writer = Many(), SlabWriter()
    fetcher = Fetcher(replace(MAP, collate_fn=default_collate), dataset, Rows(writer))
    assert fetcher.fetch([1, 2, 3]).tolist() == [10, 20, 30]
    assert dataset.calls == [[1, 2, 3]]


@pytest.mark.parametrize("bad", [[1], [2], [3], [1, 2], [2, 3], [1, 2, 3]])
def test_each_sample_is_touched_once_beside_a_slab(bad):
    dataset = Tens(bad=bad)
    fetcher = Fetcher(replace(MAP, collate_fn=default_collate), dataset, Rows(SlabWriter()))
    batch = fetcher.fetch([1, 2, 3])
    good = [10 * index for index in (1, 2, 3) if index not in bad]
    assert (batch is EMPTY) if not good else (batch.tolist() == good)
    assert dataset.touched == [1, 2, 3]
    assert [each[0] for each in fetcher.bad] == bad


def test_indices_of_numpy_are_known_by_their_number():
    dataset = Tens()
    found = fetched(dataset, list(np.array([1, 2, 3])), quarantined=frozenset([2]))
    assert found == ([10, 30], [(2, "Quarantined", 0, "skip")])


# ---- large samples ------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [[], [4], [3], [3, 4, 5]])
def test_large_samples_in_the_slab_are_right(bad):
    class Large:
        def __getitem__(self, index):
            if index in bad:
                raise ValueError
            return torch.full((LARGE,), float(index))

    segment, writer = Segment.create(), SlabWriter()
    writer.learn(0, segment.fd, 0)
    writer.begin(0, 0, 0)
    fetcher = Fetcher(replace(MAP, collate_fn=default_collate), Large(), Rows(writer))
    batch = fetcher.fetch([3, 4, 5])
    expected = [float(index) for index in (3, 4, 5) if index not in bad]
    if expected:
        assert batch[:, 0].tolist() == batch[:, -1].tolist() == expected
    else:
        assert batch is EMPTY
    del batch
    fetcher.forget()
    writer.finish()
    writer.close()


# ---- streams ------------------------------------------------------------------------------------


class Records(IterableDataset):
    """Yields what it is given; raises what is an exception, and can go on."""

    def __init__(self, *records):
        self.records = records

    def __iter__(self):
        return map(self.open, iter(self.records))

    def open(self, record):
        if isinstance(record, Exception):
            raise record
        return record


class Generated(Records):
    """The same with a generator, which cannot go on."""

    def __iter__(self):
        for record in self.records:
            yield self.open(record)


class Wrapped(Generated):
    """The same, with the generator inside something else."""

    def __iter__(self):
        return map(str, super().__iter__())


def passed(dataset, size=2, **changes):
    """All batches of a stream and all bad samples."""
    fetcher = Fetcher(replace(STREAM, **changes), dataset)
    got, bad = [], []
    try:
        for _ in range(20):
            got.append(fetcher.fetch([None] * size if changes.get("auto_collation", True) else None))
            bad += short(fetcher)
    except StopIteration:
        return [each for each in got if each is not EMPTY], bad
    return pytest.fail("no end")


BAD = (None, "ValueError", 1, "skip")


def test_a_stream_goes_on_after_a_bad_record():
    assert passed(Records(1, ValueError(), 2, 3)) == ([[1, 2], [3]], [BAD])


@pytest.mark.parametrize("action", ["skip", "replace", "retry"])
def test_the_next_record_takes_the_place_of_a_bad_one(action):
    policy = ErrorPolicy(action, then="skip")
    batches, bad = passed(Records(1, ValueError(), 2, 3), policy=policy)
    assert batches == [[1, 2], [3]]
    assert len(bad) == 1


def test_none_in_a_stream_is_bad():
    assert passed(Records(1, None, 2)) == ([[1, 2]], [(None, "DataError", 1, "skip")])


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_bad_record_at_the_end_is_recorded(drop_last):
    assert passed(Records(1, 2, ValueError()), drop_last=drop_last) == ([[1, 2]], [BAD])
    batches, bad = passed(Records(1, 2, 3, ValueError()), drop_last=drop_last)
    assert (batches, bad) == ([[1, 2]] if drop_last else [[1, 2], [3]], [BAD])


def test_a_stream_without_batches_goes_on():
    found = passed(Records(1, ValueError(), 2, ValueError()), auto_collation=False, collate_fn=str)
    assert found == (["1", "2"], [BAD, BAD])


@pytest.mark.parametrize("kind", [Generated, Wrapped])
def test_a_generator_that_cannot_go_on_raises(kind):
    fetcher = Fetcher(STREAM, kind(1, 2, ValueError("broken"), 4, 5))
    fetcher.fetch([None, None])
    with pytest.raises(ValueError, match=r"^broken$"):
        fetcher.fetch([None, None])
    assert short(fetcher) == [(None, "ValueError", 1, "raise")]


def test_a_stream_that_only_fails_raises_at_last():
    fetcher = Fetcher(STREAM, Records(*[ValueError("broken")] * 200))
    with pytest.raises(ValueError, match=r"^broken$"):
        fetcher.fetch([None, None])
    assert len(fetcher.bad) == module.MOST_IN_A_ROW
    assert fetcher.bad[-1][8] == "raise"


def test_a_policy_may_let_a_stream_raise():
    with pytest.raises(ValueError):
        passed(Records(1, ValueError()), policy=ErrorPolicy("skip", {ValueError: "raise"}))
