"""Bad samples, counted at delivery."""

from __future__ import annotations

import json
import warnings

import pytest

from penstock._engine.bad_samples import IN_QUARANTINE, BadSample, BadSamples
from penstock._engine.judge import Judge, killers
from penstock._engine.policy import ErrorPolicy
from penstock._engine.quarantine import Quarantine
from penstock.errors import DataError


def bad(index, exception="ValueError", message="broken"):
    return BadSample(index, None, exception, message, "", 0, 1, 5.0, "skip").as_tuple()


def judge(quarantine=None, *, is_batched=True, **limits):
    errors = BadSamples()
    made = Judge(ErrorPolicy("skip", **limits), errors, quarantine, is_batched=is_batched)
    made.begin()
    return made, errors


def test_bad_samples_are_recorded():
    made, errors = judge()
    made.note([1, 2, 3], [bad(2), bad(3)])
    made.note([4, 5, 6], [])
    assert (errors.count, errors.indices) == (2, [2, 3])


def test_too_many_are_an_error_with_the_first_of_them():
    made, errors = judge(most=9)
    made.note(range(9), [bad(index) for index in range(9)])
    with pytest.raises(DataError) as caught:
        made.note(range(9, 12), [bad(9, "OSError", "gone\nfor ever \x1b[31m")])
    assert str(caught.value) == (
        "[PS505] too many bad samples: 10 bad samples of 12 drawn are more than most=9\n"
        "  why:  the first are at indices 0, 1, 2, 3, 4, 5, 6, 7, … (index 0: ValueError: broken; "
        "index 1: ValueError: broken; index 2: ValueError: broken)\n"
        "  fix:  look at `loader.errors`; repair the samples, or raise the limit in ErrorPolicy\n"
        "  more: penstock explain PS505"
    )
    assert errors.count == 10


def test_texts_of_the_dataset_are_escaped_in_the_error():
    made, _ = judge(most=0)
    with pytest.raises(DataError) as caught:
        made.note([7], [bad(7, "OSError", "é\x1b[31m\nsecond line")])
    assert caught.value.why == "the first are at indices 7 (index 7: OSError: \\xe9\\x1b[31m)"


def test_a_rate_is_of_the_samples_drawn():
    made, _ = judge(most_rate=0.5, probation=4)
    made.note([0, 1], [bad(0), bad(1)])
    with pytest.raises(DataError, match=r"3 bad samples of 4 drawn are 75.00%, more than most_rate=0.5"):
        made.note([2, 3], [bad(2)])


def test_without_batches_each_delivery_is_one_sample():
    made, _ = judge(most_rate=0.5, probation=2, is_batched=False)
    made.note([0, 1, 2], [])  # one index, which happens to be a list
    made.note(3, [bad(3)])
    with pytest.raises(DataError, match="2 bad samples of 3 drawn"):
        made.note(4, [bad(4)])


def test_each_pass_has_its_own_budget():
    made, errors = judge(most=1)
    for _ in range(3):
        made.begin()
        made.note([0, 1], [bad(0)])
    assert errors.count == 3


def test_what_was_in_quarantine_costs_nothing():
    made, errors = judge(most=0)
    made.note([0, 1], [bad(0, IN_QUARANTINE)])
    assert errors.count == 1


def test_bad_samples_are_locked_away(tmp_path):
    path = tmp_path / "bad.jsonl"
    made, _ = judge(Quarantine(path))
    made.note([0, 1], [bad(1)])
    assert json.loads(path.read_text())["index"] == 1


def test_they_are_locked_away_before_the_run_is_stopped(tmp_path):
    path = tmp_path / "bad.jsonl"
    made, _ = judge(Quarantine(path), most=0)
    with pytest.raises(DataError, match="PS505"):
        made.note([0, 1], [bad(1)])
    assert Quarantine(path).known == {1}


def test_a_full_disk_is_told_and_costs_nothing(tmp_path, monkeypatch):
    path = tmp_path / "bad.jsonl"
    quarantine = Quarantine(path)

    def full(samples):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(quarantine, "add", full)
    made, errors = judge(quarantine)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made.note([0], [bad(0)])
    assert [str(each.message) for each in caught] == [
        f"[PS508] the quarantine file {str(path)!r} could not be written: No space left on device. The bad "
        "samples are in `loader.errors`, and the run goes on."
    ]
    assert errors.count == 1


def test_killers_are_remembered():
    errors = BadSamples()
    for index, exception in ((3, "WorkerLostError"), (4, "ValueError"), (None, "WorkerLostError")):
        errors.add(BadSample(*bad(index, exception)))
    assert killers(errors) == {3}
