"""Rules of the source, each on a program where it fires and on one that only looks like it.

In `cases/`, a comment `# finds PS115` says what is found on that line; nothing else may be found anywhere.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from penstock._clinic import lint, source
from penstock._clinic.causes import CAUSES
from penstock._clinic.finding import Finding
from penstock._clinic.rules.source import RULES
from penstock._clinic.settings import Options

CASES = Path(__file__).parent / "cases"
CODES = [rule.code for rule in RULES]


def found(path):
    linted = lint.lint(source.read([path]), Options())
    assert linted.notes == ()
    return Counter((finding.where.line, finding.code) for finding in linted.findings)


def expected(path):
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    marks = ((number, re.search(r"# finds (.*)", line)) for number, line in lines)
    return Counter((number, code) for number, mark in marks if mark for code in mark[1].split(", "))


@pytest.mark.parametrize("code", CODES)
def test_a_rule_finds_what_is_marked_and_nothing_else(code):
    path = CASES / f"{code.lower()}_fires.py"
    assert code in {each for _, each in expected(path)}
    assert found(path) == expected(path)


@pytest.mark.parametrize("code", CODES)
def test_a_rule_stays_silent_on_what_only_looks_like_it(code):
    path = CASES / f"{code.lower()}_silent.py"
    assert code not in {each for _, each in expected(path)}
    assert found(path) == expected(path)


@pytest.mark.parametrize("line", ["keeper.join()", "os.register_at_fork(before=REFRESH.acquire)"])
def test_a_file_that_minds_its_threads_knows_what_it_does_with_locks(line, tmp_path):
    text = (CASES / "ps111_fires.py").read_text(encoding="utf-8")
    path = tmp_path / "train.py"
    path.write_text(f"import os\n{text}\n{line}\n")
    assert not found(path)
    path.write_text(f"import os\n{text}\nos.path.join('a', 'b')\n")
    assert found(path)


def test_codes_are_distinct_and_agree_with_their_causes():
    assert len(set(CODES)) == len(CODES)
    assert all(CAUSES[rule.code] == rule.cause and rule.needs == {"source"} for rule in RULES)


@pytest.mark.parametrize("code", CODES)
def test_a_finding_has_a_place_evidence_from_the_source_and_a_remedy(code):
    findings = lint.lint(source.read([CASES / f"{code.lower()}_fires.py"]), Options()).findings
    for finding in findings:
        assert isinstance(finding, Finding)
        assert finding.confidence == "suspected"
        assert finding.evidence
        assert {fact.source for fact in finding.evidence} == {"source"}
        assert all(fact.fact and fact.value for fact in finding.evidence)
        assert finding.prescription.change
        assert finding.prescription.expect
        assert finding.where.line
        assert finding.where.column
        assert not finding.message.endswith(".")
