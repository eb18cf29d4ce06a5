"""Findings of `penstock lint` as text, JSON, SARIF and GitHub's annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import click

from penstock._clinic.finding import Finding
from penstock._clinic.lint import Linted
from penstock._clinic.source import Source

COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}


def rendered(linted: Linted, read: Source, form: str) -> str:
    """The findings in one of FORMATS."""
    return _FORMS[form](linted, read)


def _text(linted: Linted, read: Source) -> str:
    lines = [_line(finding) for finding in linted.findings]
    return "".join(f"{line}\n" for line in [*lines, _summary(linted.findings, len(read.files))])


def _line(finding: Finding) -> str:
    where = finding.where
    place = f"{where.file}:{where.line}:{where.column}: " if where else ""
    code = click.style(finding.code, fg=COLOURS[finding.severity], bold=True)
    return f"{_safe(place)}{code} {finding.cause}: {_safe(finding.message)}"


def _safe(text: str) -> str:
    """Spell out what could act on a terminal. (`_render.words` does more, and takes longer to import.)"""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _summary(findings: Sequence[Finding], files: int) -> str:
    read = f"{files} file{'s' if files != 1 else ''}"
    if not findings:
        return f"Nothing found in {read}."
    counts = Counter(finding.severity for finding in findings)
    parts = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items()]
    worst = findings[0]
    return f"Found {' and '.join(sorted(parts))} in {read}. `penstock explain {worst.code}` says more."


def _json(linted: Linted, read: Source) -> str:
    from penstock._clinic.report import Report
    from penstock._render.as_json import as_json

    is_sick = any(finding.severity != "info" for finding in linted.findings)
    return as_json(
        Report(
            target=" ".join(file.path for file in read.files),
            verdict="sick" if is_sick else "healthy",
            seconds=0.0,
            findings=linted.findings,
            notes=(*(f"{path}: cannot be read: {why}" for path, why in read.broken.items()), *linted.notes),
        )
    )


def _sarif(linted: Linted, read: Source) -> str:
    from penstock._clinic.pages import page
    from penstock._render.as_sarif import as_sarif

    del read
    return as_sarif(linted.findings, describe=page)


def _github(linted: Linted, read: Source) -> str:
    from penstock._render.as_github import as_github

    del read
    return as_github(linted.findings)


_FORMS: dict[str, Callable[[Linted, Source], str]] = {
    "text": _text,
    "json": _json,
    "sarif": _sarif,
    "github": _github,
}
FORMATS = tuple(_FORMS)
