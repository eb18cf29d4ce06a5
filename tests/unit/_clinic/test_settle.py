"""What a finding is worth after its experiments."""

from __future__ import annotations

import pytest

from penstock._clinic.causes import CODES
from penstock._clinic.finding import Evidence, Finding, Prescription, Proof
from penstock._clinic.settle import settle

SEEN, READ = Evidence("f", "v", "observed run"), Evidence("f", "v", "source")


def finding(cause="rng-repeated", severity="error", status="not-tested", **fields):
    gain = fields.pop("gain", None)
    proof = Proof(status, "x", {}, {} if gain is None else {"gain": gain})
    fields.setdefault("evidence", (SEEN,))
    return Finding(CODES[cause], cause, severity, "m", Prescription("c", "e"), proof=proof, **fields)


def settled(each):
    """(severity, confidence) of a finding that stays, or None for one that was dropped."""
    stay, refuted = settle([each])
    assert len(stay) + len(refuted) == 1
    return (stay[0].severity, stay[0].confidence) if stay else None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (finding(), ("error", "observed")),
        (finding(status="verified"), ("error", "proved")),
        (finding(status="refuted"), ("error", "suspected")),
        (finding(severity="warning", status="refuted"), ("info", "suspected")),
        (finding(severity="warning", status="refuted", stopped_at_s=3.0), ("warning", "suspected")),
        (finding(confidence="suspected"), ("info", "suspected")),
        (finding(confidence="suspected", status="verified"), ("error", "proved")),
        (finding(confidence="suspected", status="refuted"), None),
        (finding(confidence="suspected", stopped_at_s=3.0), ("error", "suspected")),
        (
            finding("too-few-workers", "warning", confidence="suspected", status="verified"),
            ("warning", "proved"),
        ),
        (finding(evidence=(READ,)), ("info", "suspected")),
        (finding(evidence=(READ, SEEN)), ("error", "observed")),
    ],
)
def test_a_finding_weighs_what_was_shown(given, expected):
    assert settled(given) == expected


@pytest.mark.parametrize(
    ("other", "dropped"),
    [
        ({"status": "verified", "stopped_at_s": 3.0, "loader": "a"}, 1),
        ({"status": "verified", "stopped_at_s": 3.0, "loader": "b"}, 0),
        ({"status": "refuted", "stopped_at_s": 3.0, "loader": "a"}, 0),
        ({"status": "verified", "loader": "a"}, 0),
    ],
)
def test_a_stop_that_is_explained_needs_no_refuted_word(other, dropped):
    crash = finding("worker-segfault", status="refuted", stopped_at_s=3.0, loader="a")
    _, refuted = settle([finding("shm-exhausted", **other), crash])
    assert [each.cause for each in refuted] == ["worker-segfault"] * dropped


@pytest.mark.parametrize(
    ("status", "loader", "severity"),
    [("verified", "a", "info"), ("refuted", "a", "error"), ("verified", "b", "error")],
)
def test_what_the_program_would_catch_is_no_alarm_where_its_type_was_lost(status, loader, severity):
    lost = finding("exception-type-lost", status=status, stopped_at_s=3.0, loader="a")
    raised = finding("dataset-raises", status="verified", stopped_at_s=3.0, loader=loader)
    stay, _ = settle([lost, raised])
    assert {each.cause: each.severity for each in stay}["dataset-raises"] == severity


@pytest.mark.parametrize(
    ("given", "severity"),
    [
        (finding("too-few-workers", "warning", "verified", gain=1.5), "warning"),
        (finding("too-few-workers", "error", "verified", gain=9.0), "warning"),
        (finding("too-few-workers", "warning", "verified", gain=1.4), "info"),
        (finding("too-few-workers", "warning", "refuted"), "info"),
        (finding("too-few-workers", "warning"), "info"),
        (finding("slow-worker-start", "warning"), "info"),
        (finding("slow-shutdown", "warning", "verified"), "warning"),
    ],
)
def test_slowness_is_a_warning_only_with_a_measured_gain(given, severity):
    assert settled(given)[0] == severity
