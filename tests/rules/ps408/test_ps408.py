"""PS408 iterator-rebuilt-each-step."""

from __future__ import annotations

from dataclasses import replace

from penstock._clinic.rules.speed.ps408_iterator_rebuilt_each_step import IteratorRebuiltEachStep
from tests.rules.pacing import Program

SICK = Program(
    passes=12, batches=1, length=250, end="dropped", start_s=0.1, first_wait_s=0.15, made_s=0.01, step_s=0.01
)


def found(program):
    return list(IteratorRebuiltEachStep().check(program.facts))


def test_a_new_iterator_for_each_step_is_found():
    (finding,) = found(SICK)

    assert finding.message == (
        "the program makes a new iterator for each step: 12 iterators gave 12 batches, 0.2 s each"
    )
    assert finding.experiments[0].change.mends == ("reuse-iterator",)
    assert finding.experiments[0].drive == "script"
    assert finding.prescription.fix.name == "hoist-iterator"


def test_a_new_loader_for_each_step_is_the_same():
    (finding,) = IteratorRebuiltEachStep().check(SICK.made_again)

    assert finding.message.startswith("the program makes a new iterator for each step: 12 iterators")


def test_passes_to_the_end_of_a_short_loader_are_epochs():
    assert not found(SICK.but(length=1, end="exhausted"))


def test_a_few_looks_at_the_data_are_left_alone():
    assert not found(SICK.but(passes=3, first_wait_s=2.0))


def test_iterators_that_cost_little_are_left_alone():
    assert not found(SICK.but(workers=0, start_s=0.0, first_wait_s=0.002))


def test_iterators_that_cost_less_than_a_third_are_a_remark():
    (finding,) = found(SICK.but(step_s=0.7))

    assert finding.severity == "info"


def test_ends_of_workers_are_a_cost_too():
    program = SICK.but(step_s=0.5, passes=24)
    (finding,) = IteratorRebuiltEachStep().check(program.facts)
    observed = program.facts.observed
    ended = tuple(replace(seen, shutdown_s=0.1) for seen in observed.iterators)
    (with_ends,) = IteratorRebuiltEachStep().check(
        replace(program.facts, observed=replace(observed, iterators=ended))
    )

    assert (finding.severity, with_ends.severity) == ("info", "warning")


def test_passes_of_many_batches_are_left_alone():
    assert not found(SICK.but(batches=20))
