"""`penstock explain`."""

from __future__ import annotations

from click.testing import CliRunner

from penstock._cli.main import main


def explain(*arguments):
    return CliRunner().invoke(main, ["explain", *arguments], catch_exceptions=False)


def test_the_page_of_a_code_is_printed():
    result = explain("ps302")
    assert result.output.startswith("PS302  rng-repeated\n\nWhat it finds\n")
    assert result.exit_code == 0
    assert explain("rng-repeated").output == result.output


def test_without_a_code_all_are_listed_by_family():
    lines = explain().output.splitlines()
    assert lines[0] == "PS0xx  Options refused at once"
    assert "  PS302  rng-repeated" in lines
    assert "  PS601  a worker died" in lines
    assert "PS9xx  Why a program could not be examined" in lines


def test_an_unknown_name_is_answered_with_the_nearest():
    result = explain("rng-repaeted")
    assert result.exit_code == 2
    assert "there is no code or cause 'rng-repaeted'; did you mean rng-repeated?" in result.stderr


def test_colour_is_optional():
    assert "\x1b[" in explain("PS302", "--color").output
    assert "\x1b[" not in explain("PS302", "--no-color").output
