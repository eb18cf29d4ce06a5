"""PS305 wrong-length."""

from __future__ import annotations

import ast
import dataclasses

import pytest

from penstock._clinic.rules.data.ps305_wrong_length import WrongLength
from penstock._clinic.source import Source, SourceFile
from penstock._lab.record import Beyond, DatasetSeen
from tests.rules.seen import facts, failure, loader, passed, samples, trial, zero


def found(observed, *rungs):
    return list(WrongLength().check(facts(observed, *rungs)))


def missing(index, text="list index out of range", kind="IndexError"):
    return failure(text, kind=kind, phase="sample", index=index, worker=0)


def holding(length, **sizes):
    return DatasetSeen(
        type="Pictures", length=length, sizes={f"dataset.{name}": size for name, size in sizes.items()}
    )


def probed(length, reach, *, past=("new",), items=None):
    """The rung without workers has looked past the length."""
    seen = DatasetSeen(
        type="Pictures", length=length, reach=reach, past=past, sizes={"dataset.items": items or reach}
    )
    return zero(loaders=(loader(dataset=seen),), samples=samples(range(length)))


def test_a_part_of_a_larger_dataset_may_be_wrong_about_its_own_length():
    part = DatasetSeen(
        type="ConcatDataset", length=20, part="Night", part_length=10, reach=11, past=("new",),
        sizes={"dataset.datasets[0].starts": 11},
    )  # fmt: skip
    rung = zero(loaders=(loader(dataset=part),), samples=samples(range(20)))

    (finding,) = found(trial(loader(dataset=part), iterators=(passed(samples=20),)), rung)

    assert finding.message == (
        "`len(Night)` of `train_loader` is 10, but it holds 11 samples: 1 are never loaded; it is one short"
    )
    assert finding.experiments == ()


def test_a_part_that_is_shorter_than_it_says_is_found_where_it_raises():
    short = dataclasses.replace(missing(12), beyond=Beyond("Hospital", 9, "eligible", 7))
    observed = trial(loader(dataset=holding(14, items=20)), outcome="error", failures=(short,))

    (finding,) = found(observed)

    assert finding.message == (
        "`len(Hospital)` of `train_loader` is 9, but `self.eligible`, which it reads, ends at 7"
    )
    assert finding.experiments == ()


def test_a_length_past_the_data_is_found():
    seen = loader(dataset=holding(14, items=10))
    observed = trial(seen, outcome="error", failures=(missing(12),), samples=samples(range(10)))

    (finding,) = found(observed)

    assert finding.severity == "error"
    assert finding.message == (
        "`len(Pictures)` of `train_loader` is 14, but it ends at 10: sample 12 is not there"
    )
    assert finding.experiments[0].change.mends == ("true-length",)
    assert finding.stopped_at_s == 3.0


def test_the_size_may_stand_in_the_exception():
    seen = loader(dataset=holding(14))
    text = "index 12 is out of bounds for axis 0 with size 10"

    assert found(trial(seen, outcome="error", failures=(missing(12, text),)))


@pytest.mark.parametrize("text", ["12", ""])
def test_a_dataset_may_refuse_an_index_past_its_end_by_itself(text):
    seen = loader(dataset=holding(14, items=100))
    observed = trial(seen, outcome="error", failures=(missing(12, text),), samples=samples(range(12)))

    assert "it ends at 12: sample 12" in found(observed)[0].message


def test_an_index_that_is_refused_in_the_middle_is_no_end():
    seen = loader(dataset=holding(14, items=100))
    observed = trial(seen, outcome="error", failures=(missing(5, "5"),), samples=samples(range(10)))

    assert not found(observed)


def test_an_index_error_within_the_data_is_another_matter():
    seen = loader(dataset=holding(14, items=10))
    observed = trial(seen, outcome="error", failures=(missing(3),), samples=samples(range(3)))

    assert not found(observed)


def test_an_index_error_is_another_matter_when_later_samples_are_there():
    seen = loader(dataset=holding(14, items=10))
    observed = trial(seen, outcome="error", failures=(missing(11),), samples=samples(range(14)))

    assert not found(observed)


def test_the_number_of_batches_in_place_of_the_samples_is_found():
    (finding,) = found(trial(loader(dataset=holding(50)), iterators=(passed(samples=50),)), probed(50, 200))

    assert finding.severity == "error"
    assert finding.message.endswith(
        "it holds 200 samples: 150 are never loaded; it looks like the number of batches of 4"
    )


def test_one_short_is_found():
    assert found(trial(iterators=(passed(samples=99),)), probed(99, 100))[0].severity == "error"


def test_any_other_number_may_be_meant():
    (finding,) = found(trial(iterators=(passed(samples=60),)), probed(60, 100))

    assert (finding.severity, finding.confidence) == ("info", "suspected")


@pytest.mark.parametrize("returned", ["60", "self.COUNT", "len(self.items) // 2"])
def test_a_number_that_is_written_in_the_source_is_not_meant(returned):
    text = f"class Pictures:\n    COUNT = 60\n    def __len__(self):\n        return {returned}\n"
    source = Source((SourceFile("/home/me/train.py", text, ast.parse(text)),))
    observed = trial(iterators=(passed(samples=60),))

    (finding,) = WrongLength().check(facts(observed, probed(60, 100), source=source))

    assert finding.severity == "error"


def test_a_small_part_may_be_meant():
    text = "class Pictures:\n    def __len__(self):\n        return 60\n"
    source = Source((SourceFile("/home/me/train.py", text, ast.parse(text)),))
    observed = trial(iterators=(passed(samples=60),))

    (finding,) = WrongLength().check(facts(observed, probed(60, 1_000), source=source))

    assert finding.severity == "info"


def test_a_rest_that_is_rounded_away_is_no_mistake():
    text = "class Pictures:\n    def __len__(self):\n        return len(self.x) // 40\n"
    source = Source((SourceFile("/home/me/train.py", text, ast.parse(text)),))
    observed = trial(iterators=(passed(samples=60),))

    (rest,) = WrongLength().check(facts(observed, probed(60, 61, items=2_430), source=source))
    (more,) = WrongLength().check(facts(observed, probed(60, 63, items=2_430), source=source))

    assert (rest.severity, more.severity) == ("info", "error")


@pytest.mark.parametrize(("items", "severity"), [(1_000, "error"), (400, "info")])
def test_who_divides_where_samples_are_rows_of_what_it_holds_has_counted_something_else(items, severity):
    text = (
        "class Pictures:\n    def __len__(self):\n        return sum(len(x) // self.size for x in self.x)\n"
    )
    source = Source((SourceFile("/home/me/train.py", text, ast.parse(text)),))
    observed = trial(iterators=(passed(samples=60),))

    (finding,) = WrongLength().check(facts(observed, probed(60, 1_000, items=items), source=source))

    assert finding.severity == severity


def test_a_length_is_looked_up_in_base_classes_and_properties():
    text = (
        "class Windowed:\n"
        "    @property\n"
        "    def each(self):\n        return self.hours // self.step\n"
        "    def __len__(self):\n        return self.series * self.each\n"
        "class Pictures(Windowed):\n    def __init__(self):\n        self.step = 4\n"
    )
    source = Source((SourceFile("/home/me/train.py", text, ast.parse(text)),))
    observed = trial(iterators=(passed(samples=60),))

    (finding,) = WrongLength().check(facts(observed, probed(60, 130, items=130), source=source))

    assert finding.severity == "error"
    assert finding.message.endswith("`__len__` divides: self.hours // self.step")


@pytest.mark.parametrize(("length", "severity"), [(60, "error"), (40, "info")])
def test_as_many_samples_for_each_thing_may_not_be_so(length, severity):
    text = "class Pictures:\n    def __len__(self):\n        return len(self.scans) * self.slices\n"
    source = Source((SourceFile("/home/me/train.py", text, ast.parse(text)),))
    observed = trial(iterators=(passed(samples=length),))

    (finding,) = WrongLength().check(facts(observed, probed(length, 100, items=12), source=source))

    assert finding.severity == severity


@pytest.mark.parametrize("returned", ["self.limit", "self.end - self.start"])
def test_a_number_that_comes_from_outside_may_be_meant(returned):
    text = f"class Pictures:\n    def __len__(self):\n        return {returned}\n"
    source = Source((SourceFile("/home/me/train.py", text, ast.parse(text)),))
    observed = trial(iterators=(passed(samples=60),))

    (finding,) = WrongLength().check(facts(observed, probed(60, 100), source=source))

    assert finding.severity == "info"


def test_the_part_of_a_larger_one_that_another_loader_has_is_left_alone():
    observed = trial(samples=samples(["new"]), iterators=(passed(samples=99),))

    assert not found(observed, probed(99, 100))


def test_a_dataset_without_end_is_left_alone():
    assert not found(trial(), probed(100, None))


def test_a_dataset_that_ends_at_its_length_is_left_alone():
    assert not found(trial(), probed(100, 100, past=()))


def streamed(length, count, **settings):
    seen = loader(dataset=DatasetSeen(type="Lines", is_iterable=True, length=length), **settings)
    return trial(seen), zero(loaders=(seen,), iterators=(passed(samples=count, workers=()),))


def test_a_stream_that_is_longer_than_it_says_is_found():
    (finding,) = found(*streamed(100, 250))

    assert finding.severity == "warning"
    assert finding.message.endswith("is 100, but a whole pass without workers brings 250 samples")


def test_an_estimate_that_is_nearly_right_is_left_alone():
    assert not found(*streamed(100, 96))


@pytest.mark.parametrize(("count", "wrong"), [(93, False), (85, True), (250, True)])
def test_what_a_dropped_batch_may_have_had_counts(count, wrong):
    assert bool(found(*streamed(100, count, drop_last=True, batch_size=4))) == wrong


def test_a_stream_without_a_length_is_left_alone():
    assert not found(*streamed(None, 96))


def test_an_epoch_that_brings_all_of_it_is_left_alone():
    assert not found(trial(iterators=(passed(samples=100),)), probed(99, 100))
