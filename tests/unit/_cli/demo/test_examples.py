"""Whether a claim holds is judged from what the runs did: every judge as a table."""

from __future__ import annotations

import ast

import pytest

from penstock._cli.demo import examples
from penstock._cli.demo.examples import EXAMPLES, Outcome

OK = Outcome(samples=100, seconds=1.0)
SLOW = Outcome(samples=100, seconds=3.2)
FAILED = Outcome(error="RuntimeError: x")
HUNG = Outcome(error="no end after 60 s", is_hung=True)


@pytest.mark.parametrize(
    ("judge", "runs", "word"),
    [
        (examples.shared_memory, {"as printed": FAILED, "loading lazily": FAILED}, "wrong"),
        (examples.shared_memory, {"as printed": FAILED, "loading lazily": OK}, "holds"),
        (examples.shared_memory, {"as printed": OK, "loading lazily": OK}, "not tested"),
        (examples.pickling, {"fork": OK, "spawn": FAILED}, "half true"),
        (examples.pickling, {"fork": FAILED, "spawn": FAILED}, "holds"),
        (examples.pickling, {"fork": OK, "spawn": OK}, "wrong"),
        (examples.opencv, {"without the variable": FAILED, "with the variable": OK}, "holds"),
        (examples.opencv, {"without the variable": FAILED, "with the variable": FAILED}, "half true"),
        (
            examples.opencv,
            {"without the variable": OK, "with the variable": Outcome(samples=1, threads=2)},
            "wrong",
        ),
        (
            examples.opencv,
            {"without the variable": OK, "with the variable": Outcome(samples=1, threads=1)},
            "wrong",
        ),
        (examples.files, {"as printed": OK}, "wrong"),
        (examples.files, {"as printed": HUNG}, "holds"),
        (examples.files, {"as printed": FAILED}, "half true"),
        (examples.exception, {"as printed": FAILED}, "wrong"),
        (examples.exception, {"as printed": OK}, "holds"),
        (examples.exception, {"as printed": HUNG}, "holds"),
        (
            examples.lock,
            {"as printed": FAILED, "with `import os`": SLOW, "without the lock": OK},
            "wrong",
        ),
        (
            examples.lock,
            {"as printed": OK, "with `import os`": OK, "without the lock": OK},
            "half true",
        ),
        (
            examples.lock,
            {"as printed": OK, "with `import os`": OK, "without the lock": FAILED},
            "holds",
        ),
        (
            examples.lock,
            {"as printed": OK, "with `import os`": FAILED, "without the lock": FAILED},
            "half true",
        ),
        (
            examples.lock,
            {"as printed": OK, "with `import os`": HUNG, "without the lock": OK},
            "wrong",
        ),
    ],
)
def test_the_runs_decide_about_the_claim(judge, runs, word):
    assert judge(runs).word == word


def test_a_lock_is_weighed_in_seconds():
    runs = {"as printed": FAILED, "with `import os`": SLOW, "without the lock": OK}
    assert examples.lock(runs).why == (
        "as printed it does not run; mended, it is 3.2 times slower than no lock, which is right too"
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
def test_every_program_is_python_and_every_way_is_judged(example):
    ast.parse(example.program)
    assert example.judge({way.name: OK for way in example.ways}).why


def test_there_are_three_examples_of_each_question():
    assert [example.question for example in EXAMPLES] == [examples.FIRST] * 3 + [examples.SECOND] * 3


def test_a_rate_needs_samples_and_time():
    assert OK.rate == 100.0
    assert FAILED.rate is None
    assert Outcome(samples=0, seconds=1.0).rate is None
