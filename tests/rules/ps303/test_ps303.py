"""PS303 stale-dataset-in-workers."""

from __future__ import annotations

from penstock._clinic.rules.data.ps303_stale_dataset_in_workers import StaleDatasetInWorkers
from penstock._lab.plan import Change, Plan
from tests.rules.seen import facts, loader, passed, samples, trial

KEPT = loader(persistent_workers=True)
EPOCH = {"dataset.epoch": "0 → 1"}
LATER = (passed(), passed(1, changed=EPOCH))
USED = (passed(), passed(1, changed=EPOCH, used=("dataset.epoch",)))
SAME = (*samples(range(10), worker=0), *samples(range(10), iterator=1, worker=0))
OTHER = (*samples(range(10), worker=0), *samples(range(50, 60), iterator=1, worker=0))


def found(observed):
    return list(StaleDatasetInWorkers().check(facts(observed)))


def test_an_attribute_that_persistent_workers_do_not_see_is_found():
    (finding,) = found(trial(KEPT, iterators=USED, samples=SAME))

    assert finding.severity == "error"
    assert finding.confidence == "observed"
    assert finding.message == (
        "persistent workers of `train_loader` do not see that the program changed `dataset.epoch` (0 → 1): "
        "they keep their copy of the first epoch"
    )
    assert finding.prescription.change.startswith("persistent_workers=True → persistent_workers=False")
    assert finding.experiments[0].change.mends == ("fresh-attributes",)
    assert finding.experiments[0].drive == "script"


def test_what_no_code_mentions_is_a_suspicion_where_contents_do_not_change():
    (finding,) = found(trial(KEPT, iterators=LATER, samples=SAME))

    assert finding.confidence == "suspected"


def test_an_attribute_that_samples_read_counts_even_if_they_are_random():
    assert found(trial(KEPT, iterators=USED, samples=OTHER))


def test_workers_that_are_made_anew_see_it():
    assert not found(trial(iterators=USED, samples=SAME))


def test_an_experiment_must_show_that_contents_change():
    def tried(**fields):
        plan = Plan(change=Change(settings={"persistent_workers": False}))
        return trial(plan=plan, iterators=LATER, **fields)

    assert found(tried(samples=SAME))
    assert found(tried())
    assert not found(tried(samples=OTHER))


def test_contents_that_do_change_are_left_alone():
    assert not found(trial(KEPT, iterators=LATER, samples=OTHER))


def test_a_dataset_that_nobody_changed_is_left_alone():
    assert not found(trial(KEPT, iterators=(passed(), passed(1)), samples=SAME))


def test_workers_that_have_the_new_value_are_left_alone():
    def later(theirs):
        return (passed(), passed(1, changed=EPOCH, used=("dataset.epoch",), workers_changed=theirs))

    assert found(trial(KEPT, iterators=later({}), samples=SAME))
    assert not found(trial(KEPT, iterators=later(EPOCH), samples=SAME))


def test_workers_with_the_new_value_of_what_nobody_reads_must_make_other_samples():
    later = (passed(), passed(1, changed=EPOCH, workers_changed=EPOCH))
    mentioned = (passed(), passed(1, changed=EPOCH, workers_changed=EPOCH, used=("dataset.epoch",)))
    plan = Plan(change=Change(mends=("fresh-attributes",)))

    assert found(trial(KEPT, plan=plan, iterators=later, samples=SAME))
    assert not found(trial(KEPT, plan=plan, iterators=later, samples=OTHER))
    assert not found(trial(KEPT, plan=plan, iterators=mentioned, samples=SAME))


def test_a_change_of_contents_is_told_without_checksums():
    changed = {"dataset.epoch": "list of 2 with the checksum 0000000a → list of 2 with the checksum 0000000b"}
    later = (passed(), passed(1, changed=changed))
    longer = {"dataset.epoch": "list of 2 with the checksum 0000000a → list of 3 with the checksum 0000000b"}
    grown = (passed(), passed(1, changed=longer))

    (finding,) = found(trial(KEPT, iterators=later, samples=SAME))
    assert "`dataset.epoch` (other contents)" in finding.message
    assert "checksum" not in str(finding.evidence)
    (finding,) = found(trial(KEPT, iterators=grown, samples=SAME))
    assert "`dataset.epoch` (list of 2 → list of 3)" in finding.message
