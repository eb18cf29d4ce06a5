"""PS413 straggler-samples."""

from __future__ import annotations

from penstock._clinic.rules.speed.ps413_straggler_samples import StragglerSamples
from tests.rules.pacing import Program

# Every fourth batch has one sample of a second; with four workers all of them fall to one.
SICK = Program(
    workers=4,
    batches=16,
    length=16,
    batch_size=4,
    made_s=0.04,
    wait_s=0.27,
    cpu_share=0.01,
    slow_batches={0: 1.03, 4: 1.03, 8: 1.03, 12: 1.03},
)


def found(program):
    return list(StragglerSamples().check(program.facts))


def test_a_few_slow_samples_that_hold_up_the_rest_are_found():
    (finding,) = found(SICK)

    assert finding.message == (
        "4 of 64 samples take 1 s, the others 10 ms, and finished batches wait behind them"
    )
    assert finding.prescription.change == "in_order=True → in_order=False"
    assert [each.change.settings for each in finding.experiments] == [{"in_order": False}, {}]
    assert finding.experiments[1].change.use_penstock


def test_what_holds_up_less_than_a_third_of_the_time_is_only_told():
    (finding,) = found(SICK.but(step_s=0.6, slow_batches={0: 3.0, 4: 3.0, 8: 3.0, 12: 3.0}))

    assert finding.severity == "info"


def test_a_torch_that_knows_no_other_order_is_told_of_our_loader():
    program = SICK.but(settings={"in_order": True})
    settings = dict(program.loader.settings)
    del settings["in_order"]
    facts = _with_settings(program, settings)

    (finding,) = StragglerSamples().check(facts)

    assert "from penstock import DataLoader" in finding.prescription.change
    assert [each.change.use_penstock for each in finding.experiments] == [True]


def test_samples_of_one_length_are_left_alone():
    assert not found(SICK.but(slow_batches={}, made_s=1.0))


def test_slow_samples_that_fall_to_all_workers_alike_are_left_alone():
    assert not found(SICK.but(slow_batches={0: 1.03, 1: 1.03, 2: 1.03, 3: 1.03}))


def test_order_that_is_free_is_left_alone():
    assert not found(SICK.but(settings={"in_order": False}))


def test_one_worker_has_no_order():
    assert not found(SICK.but(workers=1))


def test_a_hiccup_among_quick_samples_is_left_alone():
    assert not found(SICK.but(made_s=0.0004, slow_batches={0: 0.01, 4: 0.01, 8: 0.01}))


def test_too_few_samples_tell_nothing():
    assert not found(SICK.but(batches=3, batch_size=4, slow_batches={0: 3.0}, wait_s=2.0))


def _with_settings(program, settings):
    import dataclasses

    facts = program.facts
    loader = dataclasses.replace(program.loader, settings=settings)
    return dataclasses.replace(facts, observed=dataclasses.replace(facts.observed, loaders=(loader,)))
