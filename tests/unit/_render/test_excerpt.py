from __future__ import annotations

import pytest

from penstock._lab.record import Site
from penstock._render.excerpt import Excerpt, excerpt, read_lines, shortened


def marked(line: str, symbol: str) -> str:
    found = excerpt(Site("x.py", 1, symbol), read=lambda _: [line])
    return found.text[found.start : found.stop]


@pytest.mark.parametrize(
    ("line", "symbol", "part"),
    [
        ("        with LOCK:\n", "Images.__getitem__", "with LOCK:"),
        ("a = DataLoader(b)\n", "<module>", "DataLoader"),
        ("loader = DataLoader(b)\n", "loader", "loader"),
        ("self.loader = x\n", "Images.loader", "loader"),
        ("preloader = x  \n", "loader", "preloader = x"),
        ("x = '[bold]\x1b'\n", "", "x = '[bold]\\x1b'"),
    ],
)
def test_the_part_that_is_meant_is_marked(line, symbol, part):
    assert marked(line, symbol) == part


@pytest.mark.parametrize(
    ("line", "column", "part"),
    [
        ("loader = make(lambda x: x)\n", 15, "lambda"),
        ("\x1b\tloader = make()\n", 3, "loader"),
        ("f(x)\n", 2, "("),
        ("x = 1\n", 99, "x = 1"),
        ("x = 1\n", 2, "x = 1"),
    ],
)
def test_what_stands_at_the_column_is_marked(line, column, part):
    found = excerpt(Site("x.py", 1, "", column), read=lambda _: [line])
    assert found.text[found.start : found.stop] == part


@pytest.mark.parametrize("site", [None, Site("x.py", 0), Site("x.py", 3), Site("x.py", 2)])
def test_there_is_no_excerpt_of_a_line_that_is_not_there(site):
    assert excerpt(site, read=lambda _: ["a\n", "  \n"]) is None


def test_a_long_line_is_cut_around_what_is_meant():
    shown = Excerpt("x.py", 1, "a" * 50 + "LOADER" + "b" * 50, 50, 56)
    cut = shortened(shown, 40)
    assert len(cut.text) == 40
    assert cut.text[cut.start : cut.stop] == "LOADER"
    assert (cut.text[0], cut.text[-1]) == ("…", "…")


def test_a_line_that_fits_stays_whole():
    shown = Excerpt("x.py", 1, "loader", 0, 6)
    assert shortened(shown, 6) is shown


def test_a_marked_part_that_is_too_long_ends_with_the_line():
    cut = shortened(Excerpt("x.py", 1, "  " + "a" * 98, 2, 100), 40)
    assert (len(cut.text), cut.stop) == (40, 40)
    assert 0 <= cut.start < cut.stop


def test_source_is_read_by_its_own_coding(tmp_path):
    file = tmp_path / "x.py"
    file.write_bytes("# coding: latin-1\nname = 'Zoë'\n".encode("latin-1"))
    assert read_lines(str(file))[1] == "name = 'Zoë'\n"


def test_source_that_changed_is_read_again(tmp_path):
    file = tmp_path / "x.py"
    file.write_text("a\n")
    assert read_lines(str(file)) == ["a\n"]
    file.write_text("abc\n")
    assert read_lines(str(file)) == ["abc\n"]


@pytest.mark.parametrize("name", ["none.py", ".", "a\0b", "\ud800"])
def test_what_cannot_be_read_has_no_lines(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert read_lines(name) == []


def test_a_binary_has_no_lines(tmp_path):
    file = tmp_path / "x.py"
    file.write_bytes(b"\xff\xfe\x00\x80")
    assert read_lines(str(file)) == []
