from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest

from penstock._lab.record import Site
from penstock._render.as_sarif import as_sarif
from tests.unit._render import reports

# By OASIS, as published with the standard.
SCHEMA = json.loads(Path(__file__).with_name("sarif-schema-2.1.0.json").read_text(encoding="utf-8"))


def run_of(*findings, **options):
    log = json.loads(as_sarif(findings, read=reports.read, **options))
    jsonschema.validate(log, SCHEMA)
    assert log["version"] == "2.1.0"
    assert len(log["runs"]) == 1
    return log["runs"][0]


@pytest.mark.parametrize("name", reports.ALL)
def test_every_result_has_its_rule_and_lines_count_from_1(name):
    findings = reports.ALL[name].findings
    run = run_of(*findings)
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert all(rule["help"]["text"] for rule in rules)
    assert len(run["results"]) == len(findings)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning", "note"}
        for location in result.get("locations", ()):
            assert location["physicalLocation"]["region"]["startLine"] >= 1


def test_a_result_says_what_and_where():
    (result,) = run_of(*reports.SHM.findings)["results"]
    assert result["message"]["text"] == (
        "the batches in flight need 320 MB of shared memory and /dev/shm has 64 MB. Remedy: start the "
        "container with --shm-size=1g (now 64 MB), or num_workers=4 → num_workers=1"
    )
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "train.py"},
        "region": {"startLine": 11},
    }
    assert result["properties"]["proof"] == "verified"
    assert "fixes" not in result


def test_a_patch_becomes_replacements_of_whole_lines():
    (result,) = run_of(*reports.PICKLING.findings)["results"]
    (change,) = result["fixes"][0]["artifactChanges"]
    assert change["artifactLocation"] == {"uri": "train.py"}
    (replacement,) = change["replacements"]
    assert replacement["deletedRegion"] == {"startLine": 3, "startColumn": 1, "endLine": 8, "endColumn": 1}
    assert replacement["insertedContent"]["text"].splitlines()[:3] == [
        "",
        "def scaled(image):",
        "    return image / 255",
    ]


def test_a_patch_that_cannot_be_read_is_left_out():
    finding = reports.PICKLING.findings[0]
    broken = dataclasses.replace(finding.prescription, patch="--- a\nno diff\n")
    (result,) = run_of(dataclasses.replace(finding, prescription=broken))["results"]
    assert "fixes" not in result


def fingerprint(finding, read=reports.read):
    log = json.loads(as_sarif([finding], read=read))
    return log["runs"][0]["results"][0]["partialFingerprints"]


def test_a_fingerprint_survives_moved_lines_and_not_another_line():
    finding = reports.SHM.findings[0]
    moved = dataclasses.replace(finding, where=Site("train.py", 12, "<module>"))
    assert fingerprint(finding) == fingerprint(moved, lambda file: ["# new\n", *reports.read(file)])
    assert fingerprint(finding) != fingerprint(moved)


def test_the_page_of_a_rule_is_its_help():
    run = run_of(*reports.SHM.findings, describe=lambda code: f"the page of {code}")
    assert run["tool"]["driver"]["rules"][0]["help"] == {
        "text": "the page of PS201",
        "markdown": "the page of PS201",
    }


@pytest.mark.parametrize(
    ("file", "uri"),
    [("a b/ü.py", "a%20b/%C3%BC.py"), ("/elsewhere/train.py", "file:///elsewhere/train.py")],
)
def test_a_place_is_a_uri(file, uri):
    finding = dataclasses.replace(reports.SHM.findings[0], where=Site(file, 0))
    (result,) = run_of(finding)["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}


def test_a_column_is_told_where_it_is_known():
    finding = dataclasses.replace(reports.SHM.findings[0], where=Site("train.py", 11, "", 10))
    (result,) = run_of(finding)["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 11, "startColumn": 10}


def test_no_findings_are_an_empty_run():
    run = run_of()
    assert (run["results"], run["tool"]["driver"]["rules"]) == ([], [])
