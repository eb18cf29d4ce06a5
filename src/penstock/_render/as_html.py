"""A report as one page that opens anywhere: no script, no request, light and dark, fit for paper.

The template is `report.html.jinja`, with autoescape on: whatever the patient wrote stays text. Control
characters are spelled out first (`words.plain`), so that nothing turns the reading direction either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from penstock import __version__
from penstock._clinic.finding import Finding
from penstock._clinic.report import Report
from penstock._lab.record import ProcessLook, ThreadLook
from penstock._render import drawing, stacks, words
from penstock._render.excerpt import Excerpt, Read, excerpt, read_lines

AROUND = 3  # lines of source before and after the one that is meant
TEMPLATE = "report.html.jinja"
MARKS = {"+": "added", "-": "removed", "@": "hunk"}


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line of the excerpt of a finding."""

    number: int
    text: str
    is_meant: bool


def as_html(report: Report, *, read: Read = read_lines) -> str:
    """The page."""
    looks = () if report.verdict == "healthy" else report.stacks
    return _template().render(
        report=report,
        verdict=words.verdict(report),
        version=__version__,
        other_way=words.other_way(report.target),
        findings=[_finding(finding, read) for finding in report.findings],
        ladders=list(_ladders(report)),
        curve=drawing.curve(report.memory),
        processes=[_process(look) for look in stacks.in_order(looks)],
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"prose": prose, "plain": words.plain, "number": words.number, "size": words.size}
    environment.filters |= {"short_path": words.short_path, "seconds": words.seconds}
    return environment.get_template(TEMPLATE)


def prose(text: object) -> Markup:
    """Foreign text with `what stands between such marks` set as code."""
    parts = words.plain(text).split("`")
    if len(parts) % 2 == 0:  # an odd one out: show them all as they are
        return escape(words.plain(text))
    tags = ("{}", "<code>{}</code>")
    return Markup().join(Markup(tags[place % 2]).format(part) for place, part in enumerate(parts))  # noqa: S704


def _finding(finding: Finding, read: Read) -> dict[str, Any]:
    where = finding.where
    return {
        "raw": finding,
        "message": words.sentence(finding.message),
        "place": f"{words.short_path(where.file)}:{where.line}" if where else "",
        "symbol": words.plain(where.symbol) if where else "",
        "source": list(_source(excerpt(where, read=read), read)),
        "patch": list(_patch(finding.prescription.patch or "")),
        "proved": words.PROOFS[finding.proof.status],
        "proof": words.proof(finding.proof),
        "before": words.figures(finding.proof.before),
        "after": words.figures(finding.proof.after),
    }


def _source(meant: Excerpt | None, read: Read) -> Iterator[SourceLine]:
    if meant is None:
        return
    rows = read(meant.file)
    first, last = max(1, meant.line - AROUND), min(len(rows), meant.line + AROUND)
    for number in range(first, last + 1):
        yield SourceLine(number, words.plain(rows[number - 1].rstrip()), number == meant.line)


def _patch(patch: str) -> Iterator[tuple[str, str]]:
    """Each line of a diff with its kind."""
    for line in words.lines(patch.rstrip("\n")) if patch else ():
        yield ("head" if line.startswith(("---", "+++")) else MARKS.get(line[:1], "same"), line)


def _ladders(report: Report) -> Iterator[drawing.Ladder]:
    for loader in dict.fromkeys(rung.loader for rung in report.ladder):
        rungs = [rung for rung in report.ladder if rung.loader == loader]
        yield drawing.ladder(words.loader(loader, report), rungs)


def _process(look: ProcessLook) -> dict[str, Any]:
    return {"name": stacks.name(look), "threads": [_thread(thread) for thread in look.threads]}


def _thread(thread: ThreadLook) -> dict[str, Any]:
    frames = [
        (words.plain(frame.function), stacks.place(frame), stacks.is_own(frame))
        for frame in thread.frames
        if not stacks.is_observer(frame)
    ]
    return {
        "name": words.plain(thread.name or thread.tid),
        "waits": words.plain(thread.wchan),
        "frames": frames,
    }
