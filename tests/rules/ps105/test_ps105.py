"""PS105 start-method-changed."""

from __future__ import annotations

import pytest

from penstock._clinic.rules.start.ps105_start_method_changed import StartMethodChanged
from tests.rules.seen import facts, failure, host, samples, trial, zero
from tests.rules.stuck import source, spawned

SAID = failure(
    "Can't pickle local object 'main.<locals>.f'", kind="AttributeError", phase="pickle", is_fatal=True
)


def found(seen, *failures, text="", rungs=()):
    observed = trial(seen, outcome="error", failures=failures or (SAID,), host=host(python="3.14.0"))
    return list(StartMethodChanged().check(facts(observed, *rungs, source=source(text))))


def test_the_default_of_a_newer_python_is_named():
    (finding,) = found(spawned(method="forkserver", explicit=()))

    assert finding.message == (
        "`train_loader` names no start method and gets forkserver (the default of Python 3.14.0), but the"
        " program relies on fork: AttributeError: Can't pickle local object 'main.<locals>.f'"
    )
    assert finding.prescription.fix.arguments == {"multiprocessing_context": "fork"}


def test_a_line_that_sets_it_for_the_whole_program_is_named():
    (finding,) = found(spawned(method="forkserver", explicit=()), text="\nset_start_method('forkserver')")

    assert "(set at train.py:2)" in finding.message
    assert finding.severity == "info"  # what workers cannot get is the fault then


def test_globals_that_workers_no_longer_inherit_count():
    missing = failure("'the'", kind="KeyError", phase="sample", worker=0, index=1, is_fatal=True)

    (finding,) = found(
        spawned(method="forkserver", explicit=()), missing, rungs=(zero(samples=samples("abc")),)
    )

    assert finding.cause == "start-method-changed"


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (spawned(), ""),
        (spawned(method="spawn", explicit=()), "mp.set_start_method('spawn')"),
    ],
)
def test_who_asks_for_a_start_method_means_it(seen, text):
    assert found(seen, text=text) == []


def test_a_failure_that_comes_without_workers_too_is_no_matter_of_starting():
    missing = failure("'the'", kind="KeyError", phase="sample", worker=0, index=1, is_fatal=True)
    also = zero(outcome="error", failures=(failure("'the'", kind="KeyError", phase="sample", is_fatal=True),))

    assert found(spawned(method="forkserver", explicit=()), missing, rungs=(also,)) == []
