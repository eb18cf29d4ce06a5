"""PS804 exception-not-picklable."""

from __future__ import annotations

from penstock._clinic.rules.failures.ps804_exception_not_picklable import ExceptionNotPicklable
from penstock._lab.record import Site
from tests.rules.seen import facts, failure
from tests.rules.stuck import FILE, hung, worker

RAISED = failure(
    "record 53 has a bad header", kind="CorruptRecord", phase="sample", worker=1, index=53, site=Site(FILE, 7)
)
FED = failure(
    "Can't pickle local object 'make.<locals>.CorruptRecord'", kind="AttributeError", phase="feeder", worker=1
)


def found(*failures):
    return list(ExceptionNotPicklable().check(facts(hung(worker(0), worker(1), failures=failures))))


def test_the_exception_that_never_arrives_is_named():
    (finding,) = found(RAISED, FED)

    assert finding.message == (
        "sample 53 raises CorruptRecord at train.py:7, a type that cannot be pickled: the error never"
        " arrives, and"
        " the program waits for ever"
    )
    assert finding.prescription.fix.arguments == {"name": "CorruptRecord"}
    assert finding.experiments[0].change.mends == ("plain-exceptions",)


def test_a_batch_that_cannot_be_sent_is_something_else():
    assert found(FED) == []


def test_an_exception_that_arrives_is_something_else():
    heard = failure("Caught CorruptRecord in DataLoader worker process 1.", phase="next")

    assert found(RAISED, FED, heard) == []
    assert found(RAISED) == []
