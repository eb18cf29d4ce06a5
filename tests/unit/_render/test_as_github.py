from __future__ import annotations

import dataclasses

from penstock._lab.record import Site
from penstock._render.as_github import as_github
from tests.unit._render import reports


def test_a_finding_is_one_command_with_its_place():
    assert as_github(reports.SLOW.findings) == (
        "::warning file=train.py,line=11,title=PS401 too-few-workers::"
        "training waits for data 81 %25 of the time while 15 of 16 CPUs are idle%0A"
        "remedy: num_workers=0 → num_workers=4\n"
    )


def test_a_finding_without_a_place_is_a_command_too():
    assert as_github(reports.TWO.findings[1:]).startswith("::warning title=PS302 rng-repeated::all 4 workers")


def test_a_column_is_told_where_it_is_known():
    finding = dataclasses.replace(reports.SLOW.findings[0], where=Site("train.py", 11, "", 10))
    assert as_github([finding]).startswith("::warning file=train.py,line=11,col=10,title=")


def test_text_of_the_patient_begins_no_command_of_its_own():
    lines = as_github(reports.HOSTILE.findings).splitlines()
    assert [line.split()[0] for line in lines] == ["::error", "::notice"]
    assert all(line.count("::") == 2 for line in lines)
