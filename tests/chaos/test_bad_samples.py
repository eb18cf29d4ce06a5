"""A dataset of which one sample in twenty is bad, with every kind of worker: exact counts, exact indices."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import pytest
import torch
from torch.utils.data import DistributedSampler, IterableDataset, SubsetRandomSampler

from penstock import DataLoader, ErrorPolicy
from penstock._engine.policy import replacements
from penstock.errors import DataError, SettingsError

LENGTH, SIZE = 400, 16
BAD = list(range(7, LENGTH, 20))  # 5 %
FLAKY = frozenset(range(3, LENGTH, 50))


class Corrupt(torch.utils.data.Dataset):
    """One sample in twenty is bad, in one way or the other."""

    samples = tuple((f"images/{index}.jpg", 0) for index in range(LENGTH))

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        if index % 40 == 7:
            raise OSError(f"cannot identify image {index}")
        if index % 40 == 27:
            return None
        return torch.full((5,), index)


class Flaky(Corrupt):
    """Some samples come at the second try."""

    def __init__(self):
        self.tried = set()

    def __getitem__(self, index):
        if index in FLAKY and index not in self.tried:
            self.tried.add(index)
            raise ConnectionError("reset by peer")
        return super().__getitem__(index)


WORKERS = pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"num_workers": 2, "multiprocessing_context": "fork"},
        {"num_workers": 2, "multiprocessing_context": "spawn"},
        {"num_workers": 2, "backend": "thread"},
        {"num_workers": 2, "backend": "inline"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)


def batches(loader):
    return [batch[:, 0].tolist() for batch in loader]


def flat(nested):
    return [index for batch in nested for index in batch]


# ---- each action, with each kind of worker --------------------------------------------------------


@WORKERS
def test_skipped_samples_are_missing_and_nothing_else_is(options):
    loader = DataLoader(Corrupt(), SIZE, on_error="skip", **options)
    got = batches(loader)
    assert flat(got) == [index for index in range(LENGTH) if index not in BAD]
    assert len(got) == len(loader)
    assert loader.errors.count == len(BAD)
    assert loader.errors.indices == BAD


@WORKERS
def test_replaced_samples_keep_every_batch_whole(options):
    loader = DataLoader(Corrupt(), SIZE, on_error="replace", drop_last=True, **options)
    got = batches(loader)
    expected = [
        next(other for other in replacements(index, LENGTH) if other not in BAD) if index in BAD else index
        for index in range(LENGTH)
    ]
    assert flat(got) == expected
    assert [len(batch) for batch in got] == [SIZE] * len(loader)
    assert (loader.errors.count, loader.errors.indices) == (len(BAD), BAD)


@WORKERS
def test_samples_that_recover_are_not_bad(options):
    policy = ErrorPolicy("skip", {ConnectionError: "retry"}, backoff=0, then="raise")
    loader = DataLoader(Flaky(), SIZE, on_error=policy, **options)
    assert flat(batches(loader)) == [index for index in range(LENGTH) if index not in BAD]
    assert loader.errors.indices == BAD


@WORKERS
def test_samples_that_do_not_recover_are_tried_so_often(options):
    policy = ErrorPolicy("retry", retries=2, backoff=0, then="skip")
    loader = DataLoader(Corrupt(), SIZE, on_error=policy, **options)
    assert flat(batches(loader)) == [index for index in range(LENGTH) if index not in BAD]
    assert [(bad.index, bad.attempt) for bad in loader.errors] == [(index, 3) for index in BAD]


@WORKERS
def test_a_record_tells_it_all(options):
    loader = DataLoader(Corrupt(), SIZE, on_error="skip", **options)
    batches(loader)
    first, second = loader.errors[0], loader.errors[1]
    assert (first.index, first.key, first.exception) == (7, "images/7.jpg", "OSError")
    assert first.message == "cannot identify image 7"
    assert "in __getitem__" in first.traceback
    assert (first.attempt, first.action) == (1, "skip")
    assert first.worker in range(2)
    assert (second.index, second.exception, second.message) == (
        27,
        "DataError",
        "the sample at index 27 is None",
    )


@WORKERS
def test_what_the_policy_does_not_name_raises_with_its_type(options):
    loader = DataLoader(Corrupt(), SIZE, on_error=ErrorPolicy(by_type={DataError: "skip"}), **options)
    with pytest.raises(OSError, match="cannot identify image 7"):
        batches(loader)
    assert [(bad.index, bad.action) for bad in loader.errors] == [(7, "raise")]


@WORKERS
def test_a_batch_of_bad_samples_is_not_delivered(options):
    loader = DataLoader(Corrupt(), sampler=[0, 7, 1, 27, 47, 2], on_error="skip", **options)
    assert batches(loader) == [[0], [1], [2]]
    assert len(loader) == 6
    assert loader.errors.indices == [7, 27, 47]


@WORKERS
def test_every_sample_may_be_bad(options):
    loader = DataLoader(Corrupt(), 4, sampler=BAD, on_error="skip", **options)
    assert batches(loader) == []
    assert loader.errors.count == len(BAD)


@WORKERS
def test_samples_without_batches(options):
    loader = DataLoader(Corrupt(), None, sampler=[1, 7, 2], on_error="skip", **options)
    assert [int(sample[0]) for sample in loader] == [1, 2]
    assert loader.errors.indices == [7]


@WORKERS
def test_the_budget_stops_the_run(options):
    policy = ErrorPolicy("skip", most=2)
    loader = DataLoader(Corrupt(), SIZE, on_error=policy, **options)
    with pytest.raises(DataError) as caught:
        batches(loader)
    assert str(caught.value) == (
        "[PS505] too many bad samples: 3 bad samples of 48 drawn are more than most=2\n"
        "  why:  the first are at indices 7, 27, 47 (index 7: OSError: cannot identify image 7; "
        "index 27: DataError: the sample at index 27 is None; index 47: OSError: cannot identify image 47)\n"
        "  fix:  look at `loader.errors`; repair the samples, or raise the limit in ErrorPolicy\n"
        "  more: penstock explain PS505"
    )


@WORKERS
def test_the_budget_as_a_rate(options):
    policy = ErrorPolicy("skip", most_rate=0.04, probation=100)
    with pytest.raises(DataError, match=r"6 bad samples of 112 drawn are 5.36%, more than most_rate=0.04"):
        batches(DataLoader(Corrupt(), SIZE, on_error=policy, **options))
    assert batches(DataLoader(Corrupt(), SIZE, on_error=ErrorPolicy("skip", most_rate=0.06), **options))


# ---- quarantine -----------------------------------------------------------------------------------


class Watched(Corrupt):
    """Fails when an index is touched that should be left alone."""

    def __getitem__(self, index):
        assert index not in BAD, "touched"
        return super().__getitem__(index)


@WORKERS
def test_a_quarantine_file_is_written_and_given_back(options, tmp_path):
    path = tmp_path / "bad.jsonl"
    first = DataLoader(Corrupt(), SIZE, on_error="skip", quarantine=path, **options)
    expected = batches(first)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["index"], line["key"]) for line in lines] == [
        (index, f"images/{index}.jpg") for index in BAD
    ]
    written = path.read_bytes()

    again = DataLoader(Watched(), SIZE, quarantine=str(path), **options)
    assert batches(again) == expected
    assert {(bad.exception, bad.attempt, bad.action) for bad in again.errors} == {("Quarantined", 0, "skip")}
    assert again.errors.indices == BAD
    assert path.read_bytes() == written


def test_a_second_pass_writes_nothing_twice(tmp_path):
    path = tmp_path / "bad.jsonl"
    loader = DataLoader(Corrupt(), SIZE, on_error="skip", quarantine=path, num_workers=1)
    assert batches(loader) == batches(loader)
    assert len(path.read_text().splitlines()) == len(BAD)
    assert (loader.errors.count, len(loader.errors.indices)) == (2 * len(BAD), len(BAD))


def test_what_raises_is_in_quarantine_the_next_time(tmp_path):
    path = tmp_path / "bad.jsonl"
    with pytest.raises(OSError, match="cannot identify image 7"):
        batches(DataLoader(Corrupt(), SIZE, quarantine=path, num_workers=1))
    with pytest.raises(DataError, match="the sample at index 27 is None"):
        batches(DataLoader(Corrupt(), SIZE, quarantine=path, num_workers=1))
    assert [json.loads(line)["index"] for line in path.read_text().splitlines()] == [7, 27]


def test_a_damaged_file_is_refused_when_the_loader_is_made(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text("nonsense\n")
    with pytest.raises(SettingsError, match="line 1 of the quarantine file"):
        DataLoader(Corrupt(), quarantine=path)


# ---- order, ranks and samplers --------------------------------------------------------------------


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_the_batches_do_not_depend_on_the_workers(on_error):
    def run(workers, *, persistent=False):
        loader = DataLoader(
            Corrupt(), 7, shuffle=True, num_workers=workers, on_error=on_error, persistent_workers=persistent
        )
        got = []
        for seed in (5, 6):
            loader.sampler.generator = torch.Generator().manual_seed(seed)
            got.append(batches(loader))
        if persistent:
            loader._iterator._shutdown_workers()
        return got

    expected = run(0)
    assert run(1) == run(2) == run(2, persistent=True) == expected


def test_ranks_agree_when_samples_are_replaced():
    counts = []
    for rank in range(3):
        sampler = DistributedSampler(Corrupt(), 3, rank)
        counts.append(
            [len(batch) for batch in batches(DataLoader(Corrupt(), 8, sampler=sampler, on_error="replace"))]
        )
    assert counts[0] == counts[1] == counts[2]
    assert sum(counts[0]) == 134


def test_what_the_sampler_never_draws_replaces_nothing():
    train = list(range(40))
    loader = DataLoader(Corrupt(), 8, sampler=SubsetRandomSampler(train), on_error="replace", num_workers=1)
    got = flat(batches(loader))
    assert len(got) == len(train)
    assert set(got) <= set(train)


def test_out_of_order_counts_are_exact_too():
    loader = DataLoader(Corrupt(), SIZE, num_workers=2, in_order=False, on_error="skip")
    assert sorted(flat(batches(loader))) == [index for index in range(LENGTH) if index not in BAD]
    assert sorted(loader.errors.indices) == BAD


def test_what_was_not_delivered_does_not_count():
    loader = DataLoader(Corrupt(), 1, num_workers=2, on_error="skip")
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    del iterator
    assert loader.errors.count == 0


def test_skipping_under_several_ranks_is_warned_of(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        iter(DataLoader(Corrupt(), on_error="replace"))
        iter(DataLoader(Corrupt(), on_error="skip"))
    assert [str(each.message) for each in caught] == [
        '[PS507] on_error="skip" with several ranks: batches become smaller, and one whose samples are all '
        "bad is not delivered, so that ranks may end at different steps and wait for each other. "
        'on_error="replace" keeps the number of batches and their size.'
    ]


# ---- streams --------------------------------------------------------------------------------------


class Records(IterableDataset):
    """Every worker's own records, of which one in twenty is bad; goes on after it."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return map(Corrupt().__getitem__, range(first, LENGTH, step))


class Generated(IterableDataset):
    """A generator is finished by an exception."""

    def __iter__(self):
        for index in range(20):
            yield Corrupt()[index]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_goes_on_after_bad_records(workers):
    loader = DataLoader(Records(), SIZE, num_workers=workers, on_error="skip")
    got = flat(batches(loader))
    assert sorted(got) == [index for index in range(LENGTH) if index not in BAD]
    assert (loader.errors.count, loader.errors.indices) == (len(BAD), [])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_generator_that_cannot_go_on_raises(workers):
    loader = DataLoader(Generated(), 4, num_workers=workers, on_error="skip")
    with pytest.raises(OSError, match="cannot identify image 7"):
        batches(loader)


# ---- without a policy -----------------------------------------------------------------------------


class Stops(Corrupt):
    def __getitem__(self, index):
        if index == 5:
            raise StopIteration
        return index


@pytest.mark.parametrize("workers", [0, 1])
def test_stop_iteration_is_an_error_and_not_the_end(workers):
    with pytest.raises(DataError) as caught:
        list(DataLoader(Stops(), 4, num_workers=workers))
    assert caught.value.code == "PS502"
    assert caught.value.why.startswith("sample index: 5 (position 1 in its batch)\n")


@pytest.mark.parametrize("workers", [0, 1])
def test_none_is_named_by_its_index(workers):
    loader = DataLoader(Corrupt(), 4, sampler=[24, 25, 26, 27], num_workers=workers)
    with pytest.raises(TypeError) as caught:
        list(loader)
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert (
        "sample index: 27 (position 3 in its batch) does not fit: is None, in sample 24 it is Tensor" in told
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_function_of_the_users_own_may_filter_none(workers):
    def collate(samples):
        return [int(sample[0]) for sample in samples if sample is not None]

    loader = DataLoader(Corrupt(), 4, sampler=[24, 25, 26, 27], num_workers=workers, collate_fn=collate)
    assert list(loader) == [[24, 25, 26]]


def test_the_policy_needs_no_torch():
    check = "import sys, penstock; penstock.ErrorPolicy('skip'); sys.exit('torch' in sys.modules)"
    environment = {"PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", check], check=False, env=environment).returncode == 0
