"""The doctor: find the cause in a program, prove it by experiment, and prove that the remedy works.

    report = examine("train.py", ["--epochs", "1"])   # a script, a module, or module:callable
    report = diagnose(loader)                         # a loader at hand, in a notebook
    report.verdict, report.findings[0].message

Everything of the program happens in child processes with limits of time, memory, output and processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription, Proof
from penstock._clinic.report import Reason, Report
from penstock._clinic.rule import Rule

__all__ = [
    "Evidence",
    "Experiment",
    "Finding",
    "Prescription",
    "Proof",
    "Reason",
    "Report",
    "Rule",
    "diagnose",
    "examine",
]


def examine(
    target: str,
    arguments: Sequence[str] = (),
    *,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Report:
    """Examine a program: the path of a script, a module's name, or `module:callable` that returns a loader.

    `options` are those of `penstock doctor` (timeout, quick, select, ignore, experiments, workers …); what is
    not said here is read from `[tool.penstock]` in the nearest pyproject.toml. `progress` gets plain
    sentences about what is being done. Raises SettingsError for options that make no sense; a program that
    cannot be examined is no exception but the verdict "could-not-run", with its reason.
    """
    from penstock._clinic import catalog, exam, reasons, settings, source
    from penstock._lab import target as targets
    from penstock._lab.trial import run

    chosen = settings.options(options, near=Path.cwd())
    try:
        found = targets.find(target, tuple(arguments))
    except targets.TargetError as error:
        return Report(target=target, verdict="could-not-run", seconds=0.0, reason=reasons.refused(error))
    practice = exam.Practice(run=run, rules=catalog.RULES, read=lambda each: source.read(each.files))
    return exam.examine(found, options=chosen, practice=practice, say=progress or _silent)


def _silent(sentence: str) -> None:
    """Nobody listens."""


def diagnose(loader: Any, *, progress: Callable[[str], None] | None = None, **options: Any) -> Report:
    """Examine a loader at hand: its dataset and settings are shipped to fresh processes and tried there.

    For notebooks and sessions, where there is no script to run. What cannot be shipped (an open file, a lock
    in the dataset) is named in the reason of a report "could-not-run".
    """
    from penstock._clinic import shipment

    return shipment.with_loader(loader, lambda target: examine(target, progress=progress, **options))
