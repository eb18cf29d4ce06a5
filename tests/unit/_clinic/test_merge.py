"""Findings of one illness become one."""

from __future__ import annotations

from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.merge import merge
from penstock._lab.plan import Change
from penstock._lab.record import Site

SEEN = Evidence("exit", "-9", "observed run")
READ = Evidence("attribute", "self.file", "source")
SPAWN = Experiment("under spawn", Change(settings={"multiprocessing_context": "spawn"}))


def finding(**fields):
    base = {
        "code": "PS115",
        "cause": "handle-shared-across-fork",
        "severity": "error",
        "message": "m",
        "prescription": Prescription("change", "expect"),
        "evidence": (SEEN,),
        "loader": "train.py:9#0",
    }
    return Finding(**{**base, **fields})


def test_what_was_seen_and_what_was_read_become_one_finding():
    read = finding(
        loader=None,
        evidence=(READ,),
        where=Site("train.py", 4),
        severity="warning",
        prescription=Prescription("other", "expect", fix=Fix("lazy-open")),
        experiments=(SPAWN,),
    )
    (one,) = merge([read, finding()])
    assert one.evidence == (SEEN, READ)
    assert (one.severity, one.loader, one.where) == ("error", "train.py:9#0", Site("train.py", 4))
    assert one.prescription == Prescription("change", "expect", fix=Fix("lazy-open"))
    assert one.experiments == (SPAWN,)


def test_two_loaders_with_the_same_sick_line_are_one_illness():
    where = Site("train.py", 4)
    (one,) = merge([finding(where=where), finding(where=where, loader="train.py:20#0")])
    assert Evidence("also in the loader", "train.py:20#0", "observed run") in one.evidence


def test_two_loaders_with_different_lines_stay_two():
    assert len(merge([finding(where=Site("a.py", 1)), finding(where=Site("a.py", 2), loader="other")])) == 2


def test_different_causes_stay_apart():
    assert len(merge([finding(), finding(cause="bad-sample", code="PS802")])) == 2


def test_the_earliest_stop_counts():
    (one,) = merge([finding(stopped_at_s=5.0), finding(stopped_at_s=3.0)])
    assert one.stopped_at_s == 3.0


def test_an_own_patch_is_kept():
    own = Prescription("change", "expect", fix=Fix("clone-sample"))
    (one,) = merge(
        [finding(prescription=own), finding(prescription=Prescription("c", "e", fix=Fix("lazy-open")))]
    )
    assert one.prescription.fix == Fix("clone-sample")
