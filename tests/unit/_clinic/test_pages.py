"""The page of every code: found by code and by slug, whole, and never wider than asked."""

from __future__ import annotations

import pytest

from penstock._clinic import pages, reasons
from penstock._clinic.causes import CAUSES
from penstock.errors import CODES as ERRORS

EVERYTHING = sorted({**ERRORS, **reasons.PAGES, **CAUSES})
SECTIONS = ["What it finds", "Why it matters", "How we know", "What to do", "When we stay silent"]


@pytest.mark.parametrize("code", EVERYTHING)
def test_every_code_has_a_page_that_fits_the_terminal(code):
    page = pages.find(code)
    lines = list(pages.terminal(page, 80))
    assert lines[0][1].startswith(code)
    assert len(lines) > 2
    assert max(len(line) for kind, line in lines if kind != "code") <= 80


@pytest.mark.parametrize("code", sorted(CAUSES))
def test_every_cause_has_all_sections(code):
    headings = [heading for heading, _ in pages.find(code).sections]
    assert headings[: len(SECTIONS)] == SECTIONS


@pytest.mark.parametrize("name", ["PS302", "ps302", " rng-repeated ", "RNG-Repeated"])
def test_a_page_is_found_by_code_and_by_slug(name):
    page = pages.find(name)
    assert (page.code, page.title) == ("PS302", "rng-repeated")


def test_a_cause_that_is_also_a_warning_of_the_loader_has_both_texts():
    headings = [heading for heading, _ in pages.find("PS302").sections]
    assert headings[-2:] == ["What penstock lint sees", "As a warning of the loader"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("rng-repaeted", "rng-repeated"),
        ("PS3021", "PS302"),
        ("shm", "shm-exhausted"),
        ("PS61", "PS601"),
        ("zzz", None),
    ],
)
def test_the_nearest_name_is_suggested(name, meant):
    assert pages.find(name) is None
    found = pages.nearest(name)
    assert (
        found == meant
        or (meant == "PS302" and found.startswith("PS30"))
        or (meant == "PS601" and found[:4] == "PS61"[:4])
    )


def test_an_unknown_code_has_no_page():
    assert pages.page("PS000") == ""


def test_families_list_every_code_once():
    listed = [code for _, rows in pages.families() for code, _ in rows]
    assert sorted(listed) == EVERYTHING
    assert len(set(listed)) == len(listed)


def test_code_is_fenced_in_markdown_and_indented_in_the_terminal():
    page = pages.Page(
        "PS1", "x", (("What to do", "First:\n\n    a = 1\n\n    b = 2\n\nThen\nmore.\n- one\n- two"),)
    )
    assert pages.markdown(page) == (
        "# PS1 x\n\n## What to do\n\nFirst:\n\n```python\na = 1\n\nb = 2\n```\n\nThen\nmore.\n- one\n- two\n"
    )
    assert list(pages.terminal(page, 20))[3:] == [
        ("text", "First:"),
        ("text", ""),
        ("code", "    a = 1"),
        ("code", ""),
        ("code", "    b = 2"),
        ("text", ""),
        ("text", "Then more."),
        ("text", "- one"),
        ("text", "- two"),
    ]
