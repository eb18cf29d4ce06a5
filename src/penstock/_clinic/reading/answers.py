"""How a rule of the source answers. Pure."""

from __future__ import annotations

from penstock._clinic.finding import Evidence, Finding, Prescription, Severity
from penstock._clinic.rule import Rule
from penstock._lab.site import Site


def suspicion(
    rule: Rule, where: Site, message: str, remedy: Prescription, *facts: tuple[str, str], **more: Severity
) -> Finding:
    """A finding that rests on the source: a warning, unless `severity` says otherwise."""
    return Finding(
        code=rule.code,
        cause=rule.cause,
        severity=more.get("severity", "warning"),
        message=message,
        prescription=remedy,
        evidence=tuple(Evidence(fact, value, "source") for fact, value in facts),
        where=where,
        confidence="suspected",
    )
