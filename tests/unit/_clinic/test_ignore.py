"""Which findings the user does not want."""

from __future__ import annotations

import pytest

from penstock._clinic.ignore import comments, ignored_in, is_chosen, matches


def test_comments_speak_for_their_own_line():
    text = "a = 1\nloader = make()  # penstock: ignore[PS301, rng-repeated]\nb()  # penstock: ignore\n"
    assert comments(text) == {2: frozenset({"PS301", "rng-repeated"}), 3: frozenset({"*"})}


def test_a_string_is_no_comment():
    assert comments('x = "# penstock: ignore[PS301]"\n') == {}


def test_source_that_cannot_be_split_into_tokens_is_searched_by_lines():
    assert comments("def f(:\n  x = (  # penstock: ignore[PS3]\n") == {2: frozenset({"PS3"})}


@pytest.mark.parametrize("pattern", ["PS301", "ps301", "PS3", "PS", "*", "iterable-not-sharded"])
def test_a_pattern_matches_by_code_by_its_beginning_or_by_cause(pattern):
    assert matches(pattern, "PS301", "iterable-not-sharded")


@pytest.mark.parametrize("pattern", ["PS302", "PS4", "rng-repeated", "iterable"])
def test_another_pattern_does_not(pattern):
    assert not matches(pattern, "PS301", "iterable-not-sharded")


def test_ignore_has_the_last_word():
    assert is_chosen("PS301", "iterable-not-sharded")
    assert is_chosen("PS301", "iterable-not-sharded", select=["PS3"])
    assert not is_chosen("PS301", "iterable-not-sharded", select=["PS4"])
    assert not is_chosen("PS301", "iterable-not-sharded", select=["PS301"], ignore=["PS3"])


def test_files_are_named_by_name_or_path():
    table = {"train.py": ("PS1",), "tests/*": ("PS2",)}
    assert ignored_in("/home/me/train.py", table) == ("PS1",)
    assert ignored_in("/home/me/tests/run.py", table) == ("PS2",)
    assert ignored_in("/home/me/other.py", table) == ()
