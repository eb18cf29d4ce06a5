"""PS801 dataset-raises."""

from __future__ import annotations

import pytest

from penstock._clinic.rules.failures.ps801_dataset_raises import DatasetRaises
from penstock._lab.record import Site
from tests.rules.seen import facts, failure, loader, samples, trial, zero
from tests.rules.stuck import FILE


def raised(**fields):
    return failure(
        "'label'", kind="KeyError", phase="sample", **{"index": 17, "site": Site(FILE, 40), **fields}
    )


ECHO = "Caught KeyError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n"
ENDED = failure(ECHO + "KeyError: 'label'\n", kind="KeyError", phase="program", is_fatal=True)


def found(observed, *rungs):
    return list(DatasetRaises().check(facts(observed, *rungs)))


def test_sample_line_and_num_workers_0_are_told():
    observed = trial(outcome="error", failures=(raised(worker=1), ENDED))

    (finding,) = found(observed, zero(outcome="error", failures=(raised(is_fatal=True),)))

    assert finding.message == (
        "the dataset raises KeyError: 'label' for sample 17 at train.py:40, with num_workers=0 too"
    )
    assert finding.confidence == "proved"
    assert finding.severity == "error"
    assert finding.where == Site(FILE, 40)


def test_a_program_without_workers_is_examined_too():
    (finding,) = found(trial(loader(num_workers=0), outcome="error", failures=(raised(is_fatal=True),)))

    assert ("workers", "none: num_workers=0") in [(each.fact, each.value) for each in finding.evidence]


def test_what_comes_in_workers_only_is_only_suspected():
    observed = trial(outcome="error", failures=(raised(worker=1, index=2), ENDED))

    (finding,) = found(observed, zero(samples=samples("abcd")))

    assert finding.message.endswith(", in workers only")
    assert finding.confidence == "suspected"


def test_what_the_program_goes_on_from_is_an_info():
    heard = failure(ECHO + "KeyError: 'label'\n", kind="KeyError", phase="next")

    (finding,) = found(trial(failures=(raised(worker=1), heard)))

    assert finding.severity == "info"
    assert finding.stopped_at_s is None


@pytest.mark.parametrize(
    "observed",
    [
        trial(),
        trial(outcome="error", failures=(failure("No space left on device", phase="sample", is_fatal=True),)),
        trial(outcome="error", failures=(failure("bad", phase="collate", is_fatal=True),)),
        trial(outcome="error", failures=(failure("mat1 and mat2", phase="program", is_fatal=True),)),
        trial(outcome="error", failures=(failure("", kind="SystemExit", phase="sample", is_fatal=True),)),
    ],
)
def test_other_failures_are_not_the_datasets_own(observed):
    assert found(observed) == []


def test_a_rung_that_the_program_never_runs_may_fail():
    assert found(trial(), zero(outcome="error", failures=(raised(is_fatal=True),))) == []
