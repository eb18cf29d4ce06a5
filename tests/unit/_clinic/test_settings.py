"""Options of an exam, and how mistakes in them are refused."""

from __future__ import annotations

import pytest

from penstock._clinic.settings import Options, options, read
from penstock.errors import SettingsError


def test_without_a_word_the_defaults_hold(tmp_path):
    assert options({"timeout": None}, near=tmp_path) == Options()


def test_pyproject_is_read_and_the_call_has_the_last_word(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.penstock]\ntimeout = 60\nignore = ["PS4"]\nper-file-ignores = {"old_*.py" = ["PS1"]}\n'
    )
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    got = options({"ignore": ("rng-repeated",)}, near=below)
    assert (got.timeout, got.ignore, got.per_file_ignores) == (
        60.0,
        ("rng-repeated",),
        {"old_*.py": ("PS1",)},
    )


def test_codes_may_be_given_with_commas():
    assert options({"select": "PS3,PS4"}).select == ("PS3", "PS4")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"timout": 3}, "did you mean timeout"),
        ({"timeout": "60"}, "a number of seconds"),
        ({"timeout": True}, "a number of seconds"),
        ({"timeout": 1}, "5 to 3600"),
        ({"quick": 1}, "true or false"),
        ({"workers": -1}, "0 or more"),
        ({"workers": 2.5}, "a number of workers"),
        ({"format": "pdf"}, "text, json"),
        ({"output": 3}, "path"),
        ({"select": [3]}, "a list of codes"),
        ({"select": ["PS999"]}, "no code or cause"),
        ({"ignore": ["rng-repeatd"]}, "did you mean rng-repeated"),
        ({"per_file_ignores": ["PS1"]}, "a table"),
    ],
)
def test_a_mistake_is_refused_with_what_was_meant(given, says):
    with pytest.raises(SettingsError, match=says):
        options(given)


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.penstock\n")
    with pytest.raises(SettingsError, match=r"pyproject\.toml is no TOML"):
        read(tmp_path)


def test_a_table_that_is_none_is_refused(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool]\npenstock = 3\n")
    with pytest.raises(SettingsError, match="is no table"):
        read(tmp_path)
