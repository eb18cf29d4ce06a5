"""What a finding is worth after its experiments: severity, confidence, and what is dropped. Pure.

* Slowness is a warning when the remedy was measured to gain at least 1.5 times, an info below that. What was
  verified is proved.
* A suspicion that stopped nothing and that no trial has verified is an info at most; tried and refuted, it is
  told apart. A finding that rests on the source alone is such a suspicion.
* An observation that was refuted stays, with less confidence; a warning becomes an info. But where what
  stopped the loader is proved, another word about the same stop that was refuted is told apart too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from penstock._clinic.finding import Finding
from penstock._clinic.merge import rests_on_source

WORTH = 1.5

# Causes of slowness besides the PS4xx: see `causes`.
_SLOW = frozenset({"slow-worker-start", "slow-shutdown"})

# The second is what the program catches, where workers do not bring the first.
_LOST, _RAISED = "exception-type-lost", "dataset-raises"


def is_about_speed(finding: Finding) -> bool:
    """Whether the finding speaks of time lost and not of anything that goes wrong."""
    return finding.code.startswith("PS4") or finding.cause in _SLOW


def settle(findings: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Those that stay, each with its severity and confidence; and those that were refuted."""
    given = list(findings)
    explained = {each.loader for each in given if each.proof.status == "verified" and _stopped(each)}
    caught = {each.loader for each in given if each.cause == _LOST and each.proof.status == "verified"}
    stay: list[Finding] = []
    refuted: list[Finding] = []
    for finding in given:
        is_doubtful = _is_suspicion(finding) or (_stopped(finding) and finding.loader in explained)
        was_dropped = finding.proof.status == "refuted" and is_doubtful
        is_caught = finding.cause == _RAISED and finding.loader in caught
        settled = dataclasses.replace(finding, severity="info") if is_caught else _settled(finding)
        (refuted if was_dropped else stay).append(settled)
    return stay, refuted


def _stopped(finding: Finding) -> bool:
    return finding.stopped_at_s is not None


def _is_suspicion(finding: Finding) -> bool:
    is_guess = finding.confidence == "suspected" or rests_on_source(finding)
    return is_guess and not _stopped(finding)


def _settled(finding: Finding) -> Finding:
    status = finding.proof.status
    if is_about_speed(finding):
        finding = dataclasses.replace(finding, severity="warning" if _gains(finding) else "info")
        return dataclasses.replace(finding, confidence="proved") if status == "verified" else finding
    if status == "verified":
        return dataclasses.replace(finding, confidence="proved")
    if _is_suspicion(finding):
        return dataclasses.replace(finding, severity="info", confidence="suspected")
    if status == "refuted":
        return _doubted(finding)
    return finding


def _doubted(finding: Finding) -> Finding:
    """An observation that its experiment did not bear out: no alarm, unless something failed or was wrong."""
    is_alarm = finding.severity == "error" or _stopped(finding)
    return dataclasses.replace(
        finding, confidence="suspected", severity=finding.severity if is_alarm else "info"
    )


def _gains(finding: Finding) -> bool:
    """Whether a trial has shown a gain that is worth an alarm."""
    if finding.severity == "info" or finding.proof.status != "verified":
        return False
    gain = finding.proof.after.get("gain")
    return gain is None or gain >= WORTH
