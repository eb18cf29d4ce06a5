"""PS802 bad-sample."""

from __future__ import annotations

from penstock._clinic.rules.failures.ps802_bad_sample import BadSample
from penstock._lab.record import SampleSeen
from tests.rules.seen import KEY, facts, failure, trial

TYPE_ERROR = "default_collate: batch must contain tensors; found <class 'NoneType'>"


def seen(index, shape="f32[3]", **fields):
    return SampleSeen(loader=KEY, worker=0, index=index, shape=shape, **fields)


def found(*samples, index, **fields):
    failed = failure(
        TYPE_ERROR, kind="TypeError", phase="collate", worker=0, index=index, is_fatal=True, **fields
    )
    return list(BadSample().check(facts(trial(outcome="error", failures=(failed,), samples=samples))))


def test_the_sample_that_is_none_is_named():
    (finding,) = found(seen(0), seen(1), seen(2, "", is_none=True), seen(3), index=2)

    assert finding.message == "sample 2 is None, so `train_loader` cannot make its batch"


def test_the_sample_of_another_form_is_named_even_where_it_comes_first():
    (finding,) = found(seen(0, "f32[5]"), seen(1), seen(2), seen(3), index=1, field="['x']")

    assert finding.message == (
        "sample 0 is f32[5] where others are f32[3] in field `['x']`, so `train_loader` cannot make its batch"
    )


def test_a_batch_is_found_by_its_indices():
    (finding,) = found(seen(7), seen(8, "f32[9]"), seen(9), index=[7, 8, 9])

    assert finding.message.startswith("sample 8 is f32[9]")


def test_where_no_form_differs_the_words_of_collate_remain():
    (finding,) = found(index=[7, 8])

    assert finding.message == (
        f"the batch of a sample of the batch [7, 8] of `train_loader` cannot be made: TypeError: {TYPE_ERROR}"
    )


def test_a_batch_of_nothing_that_the_program_stumbles_over_is_traced_to_its_sample():
    ended = failure(
        "cannot unpack non-iterable NoneType object", kind="TypeError", phase="program", is_fatal=True
    )
    observed = trial(outcome="error", failures=(ended,), samples=(seen(3), seen(4, "", is_none=True)))

    (finding,) = BadSample().check(facts(observed))

    assert finding.message == (
        "sample 4 of `train_loader` is None, and the program cannot use its batch: TypeError: cannot unpack"
        " non-iterable NoneType object"
    )
    assert list(BadSample().check(facts(trial(outcome="error", failures=(ended,), samples=(seen(3),))))) == []


def test_a_full_machine_is_no_fault_of_the_sample():
    full = failure("unable to allocate shared memory(shm) for file", phase="collate", worker=0, is_fatal=True)

    assert list(BadSample().check(facts(trial(outcome="error", failures=(full,))))) == []
    assert list(BadSample().check(facts(trial()))) == []


def test_the_comparison_made_on_the_spot_is_told_where_samples_were_not_kept():
    how = "field ['x'] is f32[5], in sample 12 it is f32[9]"
    note = f"sample index: 77 (position 3 in its batch) does not fit: {how}"

    (finding,) = found(index=77, note=note)

    assert finding.message == f"sample 77 does not fit its batch in `train_loader`: {how}"
