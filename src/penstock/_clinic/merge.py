"""Findings of one cause become one: what was seen at work, with what the source says of it. Pure.

Findings belong together when they share a cause and a loader (a finding that names no loader fits any), or a
cause and a place in the source: two loaders over one sick dataset are one illness.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription

SOURCE = "source"

_SEVERITY = {"error": 0, "warning": 1, "info": 2}
_CONFIDENCE = {"proved": 0, "observed": 1, "suspected": 2}


def merge(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The same findings with those of one illness made one, in order of the first of each."""
    groups: list[list[Finding]] = []
    # What was seen at work comes first, so that a finding of the source alone joins it and not the reverse.
    for finding in sorted(findings, key=rests_on_source):
        home = next((group for group in groups if any(belong(each, finding) for each in group)), None)
        if home is None:
            groups.append([finding])
        else:
            home.append(finding)
    return tuple(_one(group) for group in groups)


def rests_on_source(finding: Finding) -> bool:
    """Whether nothing but the source speaks for it."""
    return bool(finding.evidence) and all(each.source == SOURCE for each in finding.evidence)


def belong(one: Finding, other: Finding) -> bool:
    """Whether two findings are of one illness."""
    if one.cause != other.cause:
        return False
    if one.loader == other.loader or one.loader is None or other.loader is None:
        return True
    return one.where is not None and one.where == other.where


def _one(group: list[Finding]) -> Finding:
    """The strongest of a group, with what the others know."""
    best = min(group, key=_weight)
    if len(group) == 1:
        return best
    stops = [each.stopped_at_s for each in group if each.stopped_at_s is not None]
    return dataclasses.replace(
        best,
        evidence=_evidence(best, group),
        where=best.where or next((each.where for each in group if each.where), None),
        loader=best.loader or next((each.loader for each in group if each.loader), None),
        prescription=_prescription(best, group),
        experiments=_experiments(group),
        remedy=best.remedy or next((each.remedy for each in group if each.remedy), None),
        stopped_at_s=min(stops) if stops else None,
    )


def _weight(finding: Finding) -> tuple[bool, int, int]:
    return rests_on_source(finding), _SEVERITY[finding.severity], _CONFIDENCE[finding.confidence]


def _evidence(best: Finding, group: list[Finding]) -> tuple[Evidence, ...]:
    others = [each for each in group if each is not best]
    found = dict.fromkeys((*best.evidence, *(fact for each in others for fact in each.evidence)))
    loaders = dict.fromkeys(each.loader for each in others if each.loader not in {None, best.loader})
    also = (Evidence("also in the loader", str(key), "observed run") for key in loaders)
    return (*found, *also)


def _prescription(best: Finding, group: list[Finding]) -> Prescription:
    """The best one's own; a patch, or the name of one, comes from whoever has it."""
    own = best.prescription
    if own.fix is not None or own.patch is not None:
        return own
    for each in group:
        if each.prescription.fix is not None or each.prescription.patch is not None:
            return dataclasses.replace(own, fix=each.prescription.fix, patch=each.prescription.patch)
    return own


def _experiments(group: list[Finding]) -> tuple[Experiment, ...]:
    found: list[Experiment] = []
    for each in group:
        found += [experiment for experiment in each.experiments if experiment not in found]
    return tuple(found)
