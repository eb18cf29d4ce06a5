"""Where workers live, and why."""

from __future__ import annotations

import multiprocessing
import sys

import pytest

from penstock._engine.backends import choice
from penstock._engine.backends.choice import HAND_OVER_S, Choice, choose, choose_birth

FORK = "start method fork: workers inherit the program's state"
SPAWN = "start method spawn: the dataset is shipped to a fresh process"


@pytest.mark.parametrize(
    ("arguments", "is_iterable", "expected"),
    [
        (("process", "fork", None), False, Choice("process", "forked", f"backend='process'; {FORK}")),
        (("process", "spawn", None), False, Choice("process", "clean", f"backend='process'; {SPAWN}")),
        (("thread", "fork", None), False, Choice("thread", "forked", f"backend='thread'; {FORK}")),
        (("inline", "spawn", None), True, Choice("inline", "clean", f"backend='inline'; {SPAWN}")),
        (
            ("auto", "fork", None),
            True,
            Choice("process", "forked", f"auto: iterable datasets shard by process; {FORK}"),
        ),
        (
            ("auto", "fork", 1.0),
            False,
            Choice("process", "forked", f"auto: batches are worth a worker; {FORK}"),
        ),
        (
            ("auto", "fork", None),
            False,
            Choice("process", "forked", f"auto: batches are worth a worker; {FORK}"),
        ),
        (
            ("auto", "fork", 20e-6),
            False,
            Choice("inline", "forked", "auto: a batch takes 20 us, less than handing it over"),
        ),
        (
            ("auto", "fork", HAND_OVER_S),
            False,
            Choice("process", "forked", f"auto: batches are worth a worker; {FORK}"),
        ),
        (
            ("auto", "fork", 20e-6),
            True,
            Choice("process", "forked", f"auto: iterable datasets shard by process; {FORK}"),
        ),
    ],
)
def test_the_choice_follows_the_options(arguments, is_iterable, expected):
    assert choose(*arguments, is_iterable=is_iterable) == expected


@pytest.mark.parametrize(
    ("method", "birth"), [("fork", "forked"), ("spawn", "clean"), ("forkserver", "clean")]
)
def test_a_birth_follows_the_start_method(method, birth):
    assert choose_birth(method)[0] == birth


def test_a_birth_follows_the_programs_start_method(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda *, allow_none: "spawn")
    assert choose_birth(None) == ("clean", SPAWN)


def test_a_birth_follows_the_platforms_default_without_fixing_it(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda *, allow_none: None)
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["forkserver", "spawn"])
    assert choose_birth(None)[0] == "clean"


@pytest.mark.parametrize(("platform", "expected"), [("linux", True), ("darwin", False), ("win32", False)])
def test_processes_need_linux(monkeypatch, platform, expected):
    monkeypatch.setattr(sys, "platform", platform)
    assert choice.has_processes() is expected
