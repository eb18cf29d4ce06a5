"""PS412 large-python-objects."""

from __future__ import annotations

from penstock._clinic.rules.speed.ps412_large_python_objects import LargePythonObjects
from tests.rules.pacing import Program

SICK = Program(pickled=1 << 20, made_s=0.02, wait_s=0.07)


def found(program):
    return list(LargePythonObjects().check(program.facts))


def test_batches_that_go_through_a_pipe_are_found():
    (finding,) = found(SICK)

    assert finding.message == (
        "1 MB of each batch are Python objects that go through a pipe: "
        "about 61 ms of work, and training waits 70 ms for a batch"
    )
    assert finding.experiments[0].change.mends == ("unsent-batches",)


def test_a_few_labels_are_left_alone():
    assert not found(SICK.but(pickled=2000))


def test_the_making_of_batches_is_another_cause():
    assert not found(SICK.but(made_s=0.14, pickled=300_000))


def test_pickling_that_takes_its_time_from_the_making_counts():
    (finding,) = found(SICK.but(made_s=0.14))

    assert "about 41.9 ms of work, and training waits 70 ms" in finding.message


def test_without_workers_nothing_is_handed_over():
    assert not found(SICK.but(workers=0))


def test_where_no_workers_were_faster_the_pipe_is_left_out():
    (finding,) = found(SICK.but(rates={0: 1000.0, 2: 200.0}))

    zero, unsent = (each.change for each in finding.experiments)
    assert (zero.settings, unsent.mends) == ({"num_workers": 0}, ("unsent-batches",))


def test_what_is_waited_for_but_little_is_a_remark():
    (finding,) = found(SICK.but(step_s=0.4))

    assert finding.severity == "info"
    assert not found(SICK.but(step_s=4.0))
