"""PS303 stale-dataset-in-workers."""

from __future__ import annotations

import ast

from penstock._clinic.rules.data.ps303_stale_dataset_in_workers import StaleDatasetInWorkers
from penstock._clinic.source import Source, SourceFile
from penstock._lab.plan import Change, Plan
from tests.rules.seen import facts, loader, passed, samples, trial

KEPT = loader(persistent_workers=True)
LATER = (passed(), passed(1, changed={"dataset.epoch": "0 → 1"}))
SAME = (*samples(range(10), worker=0), *samples(range(10), iterator=1, worker=0))
OTHER = (*samples(range(10), worker=0), *samples(range(50, 60), iterator=1, worker=0))

READS = """
class Pictures:
    def __init__(self):
        self.epoch = 0
    def __getitem__(self, index):
        return index * self.epoch
"""
READS_NOT = """
class Pictures:
    def __init__(self):
        self.epoch = 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __getitem__(self, index):
        return index
"""


def found(observed, text=None):
    source = Source((SourceFile("/home/me/train.py", text, ast.parse(text)),)) if text else None
    return list(StaleDatasetInWorkers().check(facts(observed, source=source)))


def test_an_attribute_that_persistent_workers_do_not_see_is_found():
    (finding,) = found(trial(KEPT, iterators=LATER, samples=SAME), READS)

    assert finding.severity == "error"
    assert finding.confidence == "observed"
    assert finding.message == (
        "persistent workers of `train_loader` do not see that the program changed `dataset.epoch` (0 → 1): "
        "they keep their copy of the first epoch"
    )
    assert finding.prescription.change.startswith("persistent_workers=True → persistent_workers=False")
    assert finding.experiments[0].change.mends == ("fresh-attributes",)
    assert finding.experiments[0].drive == "script"


def test_without_the_source_contents_that_do_not_change_are_a_suspicion():
    (finding,) = found(trial(KEPT, iterators=LATER, samples=SAME))

    assert finding.confidence == "suspected"


def test_an_attribute_that_samples_read_counts_even_if_they_are_random():
    assert found(trial(KEPT, iterators=LATER, samples=OTHER), READS)


def test_what_only_other_methods_read_is_a_suspicion():
    (finding,) = found(trial(KEPT, iterators=LATER, samples=SAME), READS.replace("__getitem__", "describe"))

    assert finding.confidence == "suspected"


def test_workers_that_are_made_anew_see_it():
    assert not found(trial(iterators=LATER, samples=SAME), READS)


def test_an_experiment_must_show_that_contents_change():
    def tried(**fields):
        plan = Plan(change=Change(settings={"persistent_workers": False}))
        return trial(plan=plan, iterators=LATER, **fields)

    assert found(tried(samples=SAME))
    assert found(tried())
    assert not found(tried(samples=OTHER))


def test_contents_that_do_change_are_left_alone():
    assert not found(trial(KEPT, iterators=LATER, samples=OTHER))


def test_an_attribute_that_nobody_reads_is_only_a_suspicion():
    (finding,) = found(trial(KEPT, iterators=LATER, samples=SAME), READS_NOT)

    assert finding.confidence == "suspected"


def test_a_dataset_that_nobody_changed_is_left_alone():
    assert not found(trial(KEPT, iterators=(passed(), passed(1)), samples=SAME), READS)


def test_workers_that_have_the_new_value_are_left_alone():
    def later(theirs):
        changed = {"dataset.epoch": "0 → 1"}
        return (passed(), passed(1, changed=changed, workers_changed=theirs))

    assert found(trial(KEPT, iterators=later({}), samples=SAME), READS)
    assert not found(trial(KEPT, iterators=later({"dataset.epoch": "0 → 1"}), samples=SAME), READS)


def test_workers_with_the_new_value_of_what_nobody_reads_must_make_other_samples():
    changed = {"dataset.epoch": "0 → 1"}
    later = (passed(), passed(1, changed=changed, workers_changed=changed))
    plan = Plan(change=Change(mends=("fresh-attributes",)))

    assert found(trial(KEPT, plan=plan, iterators=later, samples=SAME), READS_NOT)
    assert not found(trial(KEPT, plan=plan, iterators=later, samples=OTHER), READS_NOT)
    assert not found(trial(KEPT, plan=plan, iterators=later, samples=SAME), READS)


def test_a_change_of_contents_is_told_without_checksums():
    changed = {"dataset.epoch": "list of 2 with the checksum 0000000a → list of 2 with the checksum 0000000b"}
    later = (passed(), passed(1, changed=changed))
    longer = {"dataset.epoch": "list of 2 with the checksum 0000000a → list of 3 with the checksum 0000000b"}
    grown = (passed(), passed(1, changed=longer))

    (finding,) = found(trial(KEPT, iterators=later, samples=SAME), READS)
    assert "`dataset.epoch` (other contents)" in finding.message
    assert "checksum" not in str(finding.evidence)
    (finding,) = found(trial(KEPT, iterators=grown, samples=SAME), READS)
    assert "`dataset.epoch` (list of 2 → list of 3)" in finding.message
