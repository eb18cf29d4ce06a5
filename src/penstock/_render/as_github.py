"""Findings as workflow commands of GitHub Actions, which shows them beside the changed lines.

`::error file=train.py,line=31,title=PS201 shm-exhausted::message`. Needs neither rich nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock._clinic.finding import Finding
from penstock._render.words import plain, short_path

COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}
# What would end a command, and in a property also what would begin the next.
DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def as_github(findings: Iterable[Finding]) -> str:
    """One line for each finding."""
    return "".join(f"{_command(finding)}\n" for finding in findings)


def _command(finding: Finding) -> str:
    properties = {"title": f"{finding.code} {plain(finding.cause)}"}
    if (where := finding.where) is not None:
        column = {"col": str(where.column)} if where.column > 0 else {}
        properties = {"file": short_path(where.file), "line": str(where.line), **column, **properties}
    named = ",".join(f"{name}={value.translate(PROPERTY)}" for name, value in properties.items())
    change = plain(finding.prescription.change)
    text = "\n".join([plain(finding.message), *([f"remedy: {change}"] if change else [])])
    return f"::{COMMANDS[finding.severity]} {named}::{text.translate(DATA)}"
