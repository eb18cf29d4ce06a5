"""Findings as SARIF 2.1.0, for code scanning and editors. Needs neither rich nor torch.

Rules carry help in text and Markdown; results carry places (lines count from 1), evidence, a fix where there
is a patch, and a fingerprint that survives moved lines: code, file and the text of the line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from penstock import __version__
from penstock._clinic.finding import Finding
from penstock._lab.record import Site
from penstock._render import diffs
from penstock._render.excerpt import Read, read_lines
from penstock._render.words import plain, short_path

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "info": "note"}
FINGERPRINT = "penstockLine/v1"

Describe = Callable[[str], str]  # code -> the page that `penstock explain` prints


def as_sarif(
    findings: Iterable[Finding], *, describe: Describe | None = None, read: Read = read_lines
) -> str:
    """The findings as one SARIF log."""
    return json.dumps(log(tuple(findings), describe=describe, read=read), indent=2) + "\n"


def log(
    findings: Sequence[Finding], *, describe: Describe | None = None, read: Read = read_lines
) -> dict[str, Any]:
    """The same as values."""
    first = {finding.code: finding for finding in reversed(findings)}
    codes = sorted(first)
    driver = {
        "name": "penstock",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(first[code], describe) for code in codes],
    }
    results = [_result(finding, codes.index(finding.code), read) for finding in findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(finding: Finding, describe: Describe | None) -> dict[str, Any]:
    more = f"penstock explain {finding.code}"
    page = describe(finding.code) if describe else ""
    text = page or f"{plain(finding.cause).replace('-', ' ')}. For the whole page: {more}"
    return {
        "id": finding.code,
        "name": _camel(finding.cause),
        "shortDescription": {"text": plain(finding.cause).replace("-", " ")},
        "help": {"text": text, "markdown": page or f"{plain(finding.cause)}: `{more}`"},
        "defaultConfiguration": {"level": LEVELS[finding.severity]},
        "properties": {"cause": finding.cause},
    }


def _camel(cause: str) -> str:
    return "".join(word.capitalize() for word in plain(cause).split("-"))


def _result(finding: Finding, place: int, read: Read) -> dict[str, Any]:
    change = plain(finding.prescription.change)
    message = plain(finding.message) + (f". Remedy: {change}" if change else "")
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": place,
        "level": LEVELS[finding.severity],
        "message": {"text": message},
        "partialFingerprints": {FINGERPRINT: _fingerprint(finding, read)},
        "properties": {
            "cause": finding.cause,
            "confidence": finding.confidence,
            "proof": finding.proof.status,
            "evidence": [f"{plain(each.fact)}: {plain(each.value)}" for each in finding.evidence],
        },
    }
    if finding.where is not None:
        result["locations"] = [_location(finding.where)]
    fix = _fix(finding)
    return {**result, "fixes": [fix]} if fix else result


def _location(site: Site) -> dict[str, Any]:
    region = {"startLine": max(1, site.line), **({"startColumn": site.column} if site.column > 0 else {})}
    physical = {"artifactLocation": {"uri": _uri(site.file)}, "region": region}
    logical = {"logicalLocations": [{"fullyQualifiedName": plain(site.symbol)}]} if site.symbol else {}
    return {"physicalLocation": physical, **logical}


def _uri(file: str) -> str:
    """A relative reference where the file lies below the working directory, else a file: address."""
    shown = short_path(file)
    if Path(shown).is_absolute():
        return "file://" + quote(shown)
    return quote(shown)


def _fingerprint(finding: Finding, read: Read) -> str:
    where = finding.where
    line = ""
    if where is not None:
        source = read(where.file)
        line = source[where.line - 1].strip() if 0 < where.line <= len(source) else ""
    name = Path(where.file).name if where else ""
    parts = "\0".join((finding.code, name, where.symbol if where else "", line))
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _fix(finding: Finding) -> dict[str, Any] | None:
    """The patch as replacements of whole lines; None when there is none, or none that can be read."""
    patch = finding.prescription.patch
    try:
        files = diffs.split(patch) if patch else []
    except diffs.DiffError:
        return None
    if not files:
        return None
    return {
        "description": {"text": plain(finding.prescription.change) or "apply the patch"},
        "artifactChanges": [_artifact_change(name, hunks) for name, hunks in files if hunks],
    }


def _artifact_change(name: str, hunks: Sequence[diffs.Hunk]) -> dict[str, Any]:
    return {
        "artifactLocation": {"uri": _uri(name)},
        "replacements": [_replacement(hunk) for hunk in hunks],
    }


def _replacement(hunk: diffs.Hunk) -> dict[str, Any]:
    """Whole lines: from the start of the first old line to the start of the line after the last."""
    first = hunk.at if hunk.old else hunk.at + 1
    region = {"startLine": first, "startColumn": 1, "endLine": first + len(hunk.old), "endColumn": 1}
    return {"deletedRegion": region, "insertedContent": {"text": "".join(f"{line}\n" for line in hunk.new)}}
