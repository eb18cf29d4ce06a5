from __future__ import annotations

import dataclasses
import json

import pytest

from penstock._clinic.finding import Proof
from penstock._clinic.report import LoaderLine
from penstock._render.as_json import as_json
from tests.unit._render import reports


@pytest.mark.parametrize("name", reports.ALL)
def test_every_report_is_json_of_the_schema(name):
    report = reports.ALL[name]
    read = json.loads(as_json(report))
    assert read["schema"] == "penstock.report/1"
    assert (read["target"], read["verdict"]) == (report.target, report.verdict)
    assert [each["code"] for each in read["findings"]] == [each.code for each in report.findings]
    assert len(read["ladder"]) == len(report.ladder)


def test_a_finding_keeps_every_part():
    finding = json.loads(as_json(reports.SHM))["findings"][0]
    assert finding["where"] == {"file": "train.py", "line": 11, "symbol": "<module>"}
    assert finding["evidence"][0] == {"fact": "size of /dev/shm", "value": "64 MB", "source": "host"}
    assert finding["proof"] == {
        "status": "verified",
        "experiment": "the same loader with a /dev/shm of 4 GB: RuntimeError: No space left on device "
        "(28) is gone",
        "before": {
            "outcome": "RuntimeError: No space left on device (28)",
            "batches": 3,
            "samples_per_s": None,
        },
        "after": {"outcome": "ok", "batches": 10, "samples_per_s": 231.7},
    }


def test_what_json_does_not_have_becomes_null_or_text():
    settings = {"timeout": float("nan"), "collate_fn": len, "shape": (1, 2), 3: {"a": float("inf")}}
    finding = dataclasses.replace(
        reports.SLOW.findings[0], proof=Proof("verified", "x", {"a": float("-inf")})
    )
    report = dataclasses.replace(
        reports.SLOW, loaders=(LoaderLine("x", "train.py", 1, settings),), findings=(finding,)
    )
    read = json.loads(as_json(report))
    assert read["loaders"][0]["settings"] == {
        "timeout": None,
        "collate_fn": "<built-in function len>",
        "shape": [1, 2],
        "3": {"a": None},
    }
    assert read["findings"][0]["proof"]["before"] == {"a": None}


def test_lone_surrogates_survive_as_escapes():
    assert as_json(reports.HOSTILE).isascii()
    assert json.loads(as_json(reports.HOSTILE))["notes"] == [reports.EVIL]
