"""What a program has said."""

from __future__ import annotations

import re

from penstock._clinic.facts import Facts
from penstock._clinic.said import first_said, line_with, loader_of, said
from penstock._lab.plan import Plan
from penstock._lab.record import Failure, IteratorSeen, LoaderSeen, Trial

FULL = re.compile(r"No space left")
ONE, TWO = LoaderSeen("a#0", settings={"num_workers": 2}), LoaderSeen("b#0", settings={"num_workers": 2})


def test_exceptions_come_before_what_was_printed():
    failure = Failure("OSError", "No space left on device", worker=1)
    trial = Trial(failures=(failure,), stderr="x\nNo space left, it says\n")

    found = said(trial, FULL)

    assert (found.line, found.failure, found.source) == (
        "OSError: No space left on device",
        failure,
        "worker 1",
    )


def test_standard_error_is_read_where_nothing_was_caught():
    found = said(Trial(stderr="one\n  No space left, it says  \ntwo"), FULL)

    assert (found.line, found.source) == ("No space left, it says", "standard error")
    assert said(Trial(stderr="all is well"), FULL) is None


def test_the_consumer_is_named():
    assert (
        said(Trial(failures=(Failure("OSError", "No space left", worker=-1),)), FULL).source == "the consumer"
    )
    assert said(Trial(failures=(Failure("OSError", "No space left"),)), FULL).source == "the consumer"


def test_the_observed_run_is_asked_first():
    observed, rung = Trial(stderr="No space left here"), Trial(stderr="No space left there")

    assert first_said(Facts(observed=observed, ladder=(rung,)), FULL).line == "No space left here"
    assert first_said(Facts(observed=Trial(), ladder=(rung,)), FULL).trial is rung
    assert first_said(Facts(observed=Trial()), FULL) is None


def test_long_lines_are_cut():
    assert len(line_with("No space left " + "x" * 900, FULL)) == 200


def test_a_failure_belongs_to_the_loader_that_it_names():
    trial = Trial(loaders=(ONE, TWO))

    assert loader_of(Facts(observed=trial), trial, Failure("E", loader="a#0")) is ONE


def test_a_hang_belongs_to_the_loader_that_is_waited_for():
    waiting = IteratorSeen("a#0", waiting_since_s=2.0)
    trial = Trial(loaders=(ONE, TWO), iterators=(waiting, IteratorSeen("b#0", end="raised")))

    assert loader_of(Facts(observed=trial), trial) is ONE


def test_else_to_the_last_that_did_not_end_well():
    passes = (IteratorSeen("a#0", end="raised"), IteratorSeen("b#0", end="exhausted"))
    trial = Trial(loaders=(ONE, TWO), iterators=passes)

    assert loader_of(Facts(observed=trial), trial) is ONE


def test_else_to_the_last_with_workers():
    trial = Trial(loaders=(ONE, TWO, LoaderSeen("c#0", settings={"num_workers": 0})))

    assert loader_of(Facts(observed=trial), trial) is TWO
    assert loader_of(Facts(observed=Trial()), Trial()) is None


def test_a_rung_is_about_its_own_loader():
    trial = Trial(plan=Plan(loader="a#0"), loaders=(ONE, TWO))

    assert loader_of(Facts(observed=Trial(loaders=(ONE, TWO))), trial) is ONE
