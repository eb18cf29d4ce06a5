"""The report of one exam: the contract between the doctor and everybody else.

    {"schema": "penstock.report/1", "target", "verdict", "seconds", "loaders", "ladder", "findings"}

`findings` come most likely and most severe first: the first is the doctor's answer. Pure.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock._clinic.finding import Finding
from penstock._lab.site import Site

SCHEMA = "penstock.report/1"

Verdict = Literal["healthy", "sick", "could-not-run"]
EXIT_STATUS: dict[str, int] = {"healthy": 0, "sick": 1, "could-not-run": 2}


@dataclass(frozen=True, slots=True)
class LoaderLine:
    """A loader that was examined."""

    name: str
    file: str
    line: int
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder."""

    num_workers: int
    start_method: str
    outcome: str  # "ok", "error", "hang", "crash", "oom"
    samples_per_s: float | None = None
    detail: str = ""
    loader: str = ""
    # For the page: not part of what programs should rely on.
    memory: int | None = None  # most PSS of the whole tree, bytes
    shm: int | None = None
    descriptors: int | None = None
    threads: int | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a program could not be examined, and how to go on."""

    code: str
    what: str
    why: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What one exam has found."""

    target: str
    verdict: Verdict
    seconds: float
    loaders: tuple[LoaderLine, ...] = ()
    ladder: tuple[Rung, ...] = ()
    findings: tuple[Finding, ...] = ()
    refuted: tuple[Finding, ...] = ()  # suspected, tried, and not so
    reason: Reason | None = None  # for could-not-run
    notes: tuple[str, ...] = ()  # what was not done and why: "spawn was not tried: …"
    memory: tuple[tuple[float, int], ...] = ()  # (seconds, bytes of the tree) in the observed run
    stacks: tuple[Any, ...] = ()  # ProcessLook, where the program hung

    @property
    def exit_status(self) -> int:
        """0 healthy, 1 sick, 2 could not run."""
        return EXIT_STATUS[self.verdict]


def as_json(report: Report) -> dict[str, Any]:
    """The report by its contract, with nothing but JSON values."""
    return {
        "schema": SCHEMA,
        "target": report.target,
        "verdict": report.verdict,
        "seconds": round(report.seconds, 2),
        "loaders": [dataclasses.asdict(loader) for loader in report.loaders],
        "ladder": [dataclasses.asdict(rung) for rung in report.ladder],
        "findings": [_finding(finding) for finding in report.findings],
        "refuted": [_finding(finding) for finding in report.refuted],
        "reason": None if report.reason is None else dataclasses.asdict(report.reason),
        "notes": list(report.notes),
    }


def _where(where: Site) -> dict[str, Any]:
    column = {"column": where.column} if where.column else {}
    return {"file": where.file, "line": where.line, "symbol": where.symbol, **column}


def _finding(finding: Finding) -> dict[str, Any]:
    where, prescription, proof = finding.where, finding.prescription, finding.proof
    return {
        "code": finding.code,
        "cause": finding.cause,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "message": finding.message,
        "where": None if where is None else _where(where),
        "loader": finding.loader,
        "evidence": [dataclasses.asdict(each) for each in finding.evidence],
        "prescription": {
            "change": prescription.change,
            "expect": prescription.expect,
            "patch": prescription.patch,
        },
        "proof": dataclasses.asdict(proof),
        "cured_by_penstock": finding.cured_by_penstock,
    }
