"""In which order findings are told: the first is the doctor's answer. Pure.

1. errors, then warnings, then infos; within these what is likely before what is only suspected;
2. what stopped the program, and of that what stopped it first: layers are what was found as it is, then what
   was found with the first cure in place, and so on;
3. verified, then not tested, then refuted; proved, then observed, then suspected. A change that made the
   loader a little faster, if less than was asked of it, comes before what no change is known to help;
4. of silent errors the graver (`causes.GRAVITY`);
5. and a root always comes right before the symptoms that it leads to (`causes.LEADS_TO`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock._clinic.causes import GRAVITY, LEADS_TO
from penstock._clinic.finding import Finding
from penstock._clinic.settle import is_about_speed

_SEVERITY = {"error": 0, "warning": 1, "info": 2}
_STATUS = {"verified": 0, "not-tested": 1, "refuted": 2}
_CONFIDENCE = {"proved": 0, "observed": 1, "suspected": 2}
# A gain above what two runs of the same loader differ by.
LITTLE = 1.15


def order(layers: Sequence[Sequence[Finding]]) -> tuple[Finding, ...]:
    """Every finding of every layer, once, most severe and most likely first."""
    ranked = sorted(
        ((_rank(finding, number), place, finding) for number, place, finding in _numbered(layers)),
        key=lambda each: each[:2],
    )
    findings = [finding for *_, finding in ranked]
    told: list[Finding] = []
    for finding in findings:
        _tell(finding, findings, told, ())
    return tuple(told)


def _numbered(layers: Sequence[Sequence[Finding]]) -> Iterator[tuple[int, int, Finding]]:
    place = 0
    for number, layer in enumerate(layers):
        for finding in layer:
            yield number, place, finding
            place += 1


def _rank(finding: Finding, layer: int) -> tuple[float, ...]:
    status = _STATUS[_outcome(finding)]
    is_likely = status == 0 or (finding.confidence != "suspected" and finding.proof.status != "refuted")
    stopped = finding.stopped_at_s
    return (
        _SEVERITY[finding.severity],
        not is_likely,
        stopped is None,
        layer,
        status,
        _CONFIDENCE[finding.confidence],
        stopped if stopped is not None else 0.0,
        GRAVITY.index(finding.cause) if finding.cause in GRAVITY else -1,
    )


def _outcome(finding: Finding) -> str:
    """What its trial came to, for the order: a little gain is one, and a trial that saw none is none."""
    if _was_tried_in_vain(finding):
        return "refuted"
    gain = finding.proof.after.get("gain", 0.0) if is_about_speed(finding) else 0.0
    return "verified" if gain >= LITTLE else finding.proof.status


def _tell(finding: Finding, findings: Sequence[Finding], told: list[Finding], above: tuple[int, ...]) -> None:
    """Tell a finding after its roots; `above` guards against a circle."""
    if any(each is finding for each in told) or id(finding) in above:
        return
    for root in findings:
        if leads_to(root, finding):
            _tell(root, findings, told, (*above, id(finding)))
    told.append(finding)


def leads_to(root: Finding, symptom: Finding) -> bool:
    """Whether one finding explains another: its cause leads there, in the same loader, and it weighs as much.

    An info explains no error, and what was tried and refuted explains nothing.
    """
    return (
        symptom.cause in LEADS_TO.get(root.cause, ())
        and (None in {root.loader, symptom.loader} or _line(root) == _line(symptom))
        and (root.severity != "info" or symptom.severity == "info")
        and root.proof.status != "refuted"
        and not _was_tried_in_vain(root)
    )


def _was_tried_in_vain(finding: Finding) -> bool:
    """Whether a gain was looked for and none was seen: what else slows the loader down is as likely."""
    proof = finding.proof
    return is_about_speed(finding) and proof.status == "not-tested" and bool(proof.experiment)


def _line(finding: Finding) -> str:
    """Where its loader is made: a line may make it again and again."""
    return (finding.loader or "").partition("#")[0]
