"""Whole reports as they stand on the screen.

After a change that is meant: `python -m tests.unit._render.write`, and look at the difference.
"""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from penstock._clinic.finding import Finding, Prescription
from penstock._clinic.report import Report, Rung
from penstock._render.as_text import as_text, show
from tests.unit._render import reports

EXPECTED = Path(__file__).parent / "expected"


@pytest.mark.parametrize("name", reports.ALL)
def test_the_whole_text(name):
    text = as_text(reports.ALL[name], read=reports.read)
    assert text == (EXPECTED / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("name", reports.ALL)
def test_no_line_is_wider_than_the_terminal_or_than_100_columns(name, width):
    lines = as_text(reports.ALL[name], width=width, read=reports.read).splitlines()
    assert max(map(cell_len, lines)) <= min(width, 100)


def in_colour(report: Report, **options) -> str:
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system="truecolor", **options)
    show(report, console, read=reports.read)
    return out.getvalue()


@pytest.mark.parametrize("name", reports.ALL)
def test_colour_adds_nothing_but_colour(name):
    from rich.text import Text

    text = Text.from_ansi(in_colour(reports.ALL[name])).plain
    assert text.rstrip("\n") == as_text(reports.ALL[name], read=reports.read).rstrip("\n")


def test_text_of_the_patient_cannot_emit_escapes_in_colour_either():
    import re

    coloured = in_colour(reports.HOSTILE)
    without_styles = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert not set(without_styles) & set("\x1b\x07\r\x9b\u202e\u2069")
    assert "\x1b[31mred" not in coloured.replace("\x1b[0m", "")


def test_a_finding_without_colour_has_no_escapes():
    assert "\x1b" not in as_text(reports.SHM, read=reports.read)


def test_a_terminal_without_unicode_gets_ascii():
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    show(reports.SHM, Console(file=out, width=80), read=reports.read)
    out.seek(0)
    text = out.read()
    assert "-- error PS201 shm-exhausted ---" in text
    assert "  11 | loader = DataLoader(" in text
    assert "####" in text


def test_wide_characters_are_underlined_where_they_stand():
    report = dataclasses.replace(reports.HANG, stacks=(), ladder=())
    lines = as_text(report, read=lambda _: ["\n"] * 7 + ["画像 = DataLoader(d)\n"]).splitlines()
    code = next(line for line in lines if "画像" in line)
    carets = next(line for line in lines if "^" in line)
    assert cell_len(code[: code.index("DataLoader")]) == carets.index("^")


def test_a_long_patch_is_cut_and_says_so():
    patch = "--- a\n+++ a\n@@ -1,60 +1,60 @@\n" + "-x\n+y\n" * 60
    finding = Finding("PS101", "unpicklable-dataset", "error", "…", Prescription("change it", "", patch))
    text = as_text(Report("train.py", "sick", 1.0, findings=(finding,)))
    assert "… and 83 more lines" in text


def test_each_loader_has_its_own_ladder():
    rungs = (
        Rung(0, "fork", "ok", 5.0, "", "train.py:1#0"),
        Rung(0, "fork", "hang", None, "", "train.py:2#0"),
    )
    text = as_text(dataclasses.replace(reports.TWO, ladder=rungs))
    assert "ladder of train.py:1\n" in text
    assert "ladder of train.py:2\n" in text


def test_a_healthy_program_stood_nowhere():
    report = dataclasses.replace(reports.HEALTHY, stacks=reports.HANG.stacks)
    assert as_text(report) == as_text(reports.HEALTHY)
