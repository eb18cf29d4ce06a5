from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import pytest

from penstock._clinic.finding import Evidence
from penstock._render import drawing
from penstock._render.as_html import as_html, prose
from tests.unit._render import reports

VOID = {"meta", "br", "rect", "line", "polygon", "polyline"}


class Reader(HTMLParser):
    """Checks that elements close in order, and collects tags and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open, self.tags, self.text, self.attributes = [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes.extend(attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes.extend(attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def page(name: str) -> tuple[str, Reader]:
    text = as_html(reports.ALL[name], read=reports.read)
    return text, Reader(text)


@pytest.mark.parametrize("name", reports.ALL)
def test_every_page_is_well_formed_and_asks_for_nothing(name):
    text, read = page(name)
    assert read.open == []
    assert not {"script", "link", "img", "iframe"} & set(read.tags)
    assert not any(attribute in {"src", "href", "onload", "onclick"} for attribute, _ in read.attributes)
    assert not re.search(r"url\(|@import|https?://", text)


def test_text_of_the_patient_stays_text():
    text, read = page("hostile")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "{{ 7*7 }}" in "".join(read.text)
    assert not set(text) & set("\x1b\x07\u202e\u2069\ud800")


def test_a_page_shows_the_finding_with_its_line_and_the_proof():
    _, read = page("shm")
    shown = " ".join("".join(read.text).split())
    assert "PS201 shm-exhausted" in shown
    assert '11loader = DataLoader(Images("data"), batch_size=10' in shown
    assert (
        "proved: the same loader with a /dev/shm of 4 GB: the failure is gone before: RuntimeError: No space"
        in shown
    )
    assert "penstock run train.py (tried here: it cured it)" in shown
    assert "2 workers: error RuntimeError: unable to allocate shared memory(shm)" in shown
    assert "at most 702 MB" in shown


def test_names_in_the_evidence_are_set_as_code():
    report = reports.ALL["shm"]
    named = dataclasses.replace(
        report.findings[0], evidence=(Evidence("`dataset.rows`", "a list", "samples"),)
    )

    text = as_html(dataclasses.replace(report, findings=(named,)), read=reports.read)

    assert "<li><code>dataset.rows</code>: <strong>a list</strong>" in text


def test_the_line_that_is_meant_is_marked():
    text, _ = page("hang")
    assert '<span class="meant"><span class="number">8</span>        with LOCK:</span>' in text


def test_a_patch_is_coloured_by_line():
    text, _ = page("pickling")
    assert '<span class="removed">-        self.transform = lambda image: image / 255</span>' in text
    assert '<span class="added">+        self.transform = scaled</span>' in text


def test_stacks_of_a_hang_are_shown_with_own_lines_apart():
    text, _ = page("hang")
    assert "<span>Images.__getitem__  train.py:8</span>" in text
    assert re.search(r'<span class="foreign">_worker_loop  [^<]*worker.py:374</span>', text)


def test_a_healthy_page_has_no_findings():
    _, read = page("healthy")
    assert "article" not in read.tags
    assert "healthy: 2 loaders, nothing wrong found; examined in 18 s" in "".join(read.text)


def test_a_page_says_why_a_program_could_not_be_examined():
    _, read = page("could-not-run")
    assert "pass its arguments after two dashes: penstock doctor train.py -- --data DIR" in "".join(read.text)


def test_bars_are_shares_of_the_fastest():
    drawn = drawing.ladder("x", reports.SLOW.ladder)
    assert [bar.length for bar in drawn.bars] == [26.5, 25.9, 51.5, 100.0]
    assert drawn.bars[0].value == "ok, 52.1 samples/s"


def test_a_rung_without_samples_still_has_a_bar_that_can_be_seen():
    drawn = drawing.ladder(
        "x", [dataclasses.replace(reports.SLOW.ladder[0], outcome="x", samples_per_s=None)]
    )
    assert (drawn.bars[0].length, drawn.bars[0].outcome) == (drawing.SHORTEST, "other")


@pytest.mark.parametrize("points", [(), ((0.0, 5),), ((1.0, 5), (1.0, 6)), ((0.0, 0), (1.0, 0))])
def test_no_curve_is_drawn_of_less_than_a_line(points):
    assert drawing.curve(points) is None


def test_a_curve_goes_from_the_left_to_the_right_and_its_most_is_the_top():
    drawn = drawing.curve(((2.0, 50), (3.0, 100), (4.0, 25)))
    assert drawn.line == "0.0,50.0 50.0,0.0 100.0,75.0"
    assert drawn.took == "2 s"


def test_a_long_curve_is_thinned_and_keeps_its_peak_and_both_ends():
    points = [(float(at), 1000 if at == 7777 else 100) for at in range(10_001)]
    places = drawing.curve(points).line.split()
    assert len(places) <= drawing.MOST_POINTS
    assert (places[0], places[-1]) == ("0.0,90.0", "100.0,90.0")
    assert "77.8,0.0" in places


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("set `num_workers=0` <b>", "set <code>num_workers=0</code> &lt;b&gt;"),
        ("`<i>`", "<code>&lt;i&gt;</code>"),
        ("one ` only <b>", "one ` only &lt;b&gt;"),
        ("{0} `{1}`", "{0} <code>{1}</code>"),
        ("\x1b", "\\x1b"),
    ],
)
def test_what_stands_between_backticks_is_code_and_nothing_else_is_markup(text, html):
    assert prose(text) == html
