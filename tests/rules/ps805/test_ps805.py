"""PS805 exception-type-lost."""

from __future__ import annotations

import pytest

from penstock._clinic.rules.failures.ps805_exception_type_lost import ExceptionTypeLost
from tests.rules.seen import facts, failure, trial
from tests.rules.stuck import source

RAISED = failure("/data/33.npy: 404", kind="__main__.MissingFile", phase="sample", worker=1, index=33)
CAUGHT = "Caught {} in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n{}: /data\n"
HEARD = failure(CAUGHT.format("MissingFile", "MissingFile"), phase="program", is_fatal=True)


def found(*failures, text="", outcome="error"):
    return list(
        ExceptionTypeLost().check(facts(trial(outcome=outcome, failures=failures), source=source(text)))
    )


@pytest.mark.parametrize(
    "text",
    [
        "try: pass\nexcept MissingFile: pass",
        "class MissingFile(DataError): pass\ntry: pass\nexcept (KeyError, DataError): pass",
    ],
)
def test_an_except_that_never_fires_is_an_error(text):
    (finding,) = found(RAISED, HEARD, text=text)

    line = text.count("\n") + 1
    assert finding.message == (
        "MissingFile raised for sample 33 in a worker reaches the program as RuntimeError, so `except"
        " MissingFile`"
        f" at train.py:{line} never fires"
    )
    assert finding.severity == "error"
    assert (finding.experiments[0].drive, finding.experiments[0].change.settings) == (
        "script",
        {"num_workers": 0},
    )


@pytest.mark.parametrize(
    ("handed", "waited"),
    [
        ("train(loader, MissingFile)", "errors"),
        ("SKIPPED = (KeyError, MissingFile)", "SKIPPED"),
        ("def train(errors=MissingFile): pass", "self.errors"),
    ],
)
def test_an_except_that_is_handed_the_type_never_fires_either(handed, waited):
    (finding,) = found(RAISED, HEARD, text=f"{handed}\ntry: pass\nexcept {waited}: pass")

    assert finding.severity == "error"
    assert f"so `except {waited}` at train.py:3 never fires" in finding.message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "try: pass\nexcept Exception: pass",
        "train(loader, MissingFile)\ntry: pass\nexcept OSError: pass",
        "isinstance(error, MissingFile)\ntry: pass\nexcept errors: pass",
        "raise MissingFile\ntry: pass\nexcept errors: pass",
    ],
)
def test_without_such_an_except_it_is_an_info(text):
    (finding,) = found(RAISED, HEARD, text=text)

    assert finding.severity == "info"


def test_a_type_that_cannot_be_built_again_is_lost_too():
    traceback = '  File "/usr/lib/python3.11/site-packages/torch/_utils.py", line 790, in reraise\n'
    heard = failure(
        "unexpected keyword argument 'message'",
        kind="TypeError",
        phase="program",
        traceback=traceback,
        is_fatal=True,
    )

    (finding,) = found(RAISED, heard, text="try: pass\nexcept MissingFile: pass")

    assert finding.message.startswith(
        "MissingFile raised for sample 33 in a worker reaches the program as TypeError"
    )
    assert found(heard) == []


def test_a_type_that_arrives_is_not_lost():
    heard = failure(CAUGHT.format("KeyError", "KeyError"), kind="KeyError", phase="program", is_fatal=True)

    assert found(heard) == []
    assert found(outcome="ok") == []
