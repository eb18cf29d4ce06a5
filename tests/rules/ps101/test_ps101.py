"""PS101 unpicklable-dataset."""

from __future__ import annotations

import pytest

from penstock._clinic.rules.start.ps101_unpicklable_dataset import UnpicklableDataset
from tests.rules.seen import facts, failure, loader, trial
from tests.rules.stuck import spawned, thing

SAID = "Can't pickle local object 'main.<locals>.<lambda>'"


def failing(seen):
    return trial(
        seen, outcome="error", failures=(failure(SAID, kind="AttributeError", phase="pickle", is_fatal=True),)
    )


def found(observed):
    return list(UnpicklableDataset().check(facts(observed)))


def test_the_attribute_that_does_not_pickle_is_named():
    culprit = thing("dataset.transform.steps[0]", "lambda", pickles=False, error=SAID)

    (finding,) = found(failing(spawned(thing("dataset.f", pickles=False, error="other"), culprit)))

    assert finding.message == (
        "`dataset.transform.steps[0]` is a lambda and cannot be pickled, so `train_loader` cannot start"
        " workers"
        " by spawn"
    )
    assert finding.prescription.fix.name == "lambda-to-function"
    assert finding.experiments[0].change.settings == {"multiprocessing_context": "fork"}
    assert finding.severity == "error"
    assert finding.stopped_at_s == 3.0


def test_a_handle_is_to_be_opened_in_the_worker():
    (finding,) = found(failing(spawned(thing("dataset.lock", "lock", pickles=False))))

    assert finding.prescription.fix.name == "lazy-open"


def test_pickles_own_words_are_told_where_nothing_was_found():
    (finding,) = found(failing(spawned(method="forkserver")))

    assert finding.message == (
        f"workers of `train_loader` start by forkserver, and pickle refuses what they need: {SAID}"
    )


def test_under_fork_nothing_is_pickled():
    assert found(trial(loader(things=(thing(kind="lambda", pickles=False),)))) == []


def test_a_feeder_that_refuses_a_batch_is_something_else():
    lost = failure("cannot pickle 'generator' object", kind="TypeError", phase="feeder")

    assert found(trial(spawned(), outcome="hang", failures=(lost,))) == []


@pytest.mark.parametrize(
    ("kind", "inner", "is_refusal"),
    [
        ("Exception", "", True),
        (
            "ValueError",
            '  File "/home/me/train.py", line 9, in __getstate__\n    raise ValueError(1)\n',
            True,
        ),
        ("BrokenPipeError", "", False),
        (
            "RuntimeError",
            '  File "/x/torch/multiprocessing/reductions.py", line 5, in reduce_storage\n',
            False,
        ),
    ],
)
def test_an_object_may_refuse_in_words_of_its_own(kind, inner, is_refusal):
    text = "Error while attempting to serialize Tokenizer"
    dump = (
        "Traceback (most recent call last):\n"
        '  File "/x/multiprocessing/reduction.py", line 60, in dump\n    ForkingPickler(file).dump(obj)\n'
    )
    told = failure(text, kind=kind, phase="start", is_fatal=True, traceback=f"{dump}{inner}{kind}: {text}\n")

    assert bool(found(trial(spawned(), outcome="error", failures=(told,)))) == is_refusal
