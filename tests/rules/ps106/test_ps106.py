"""PS106 slow-worker-start."""

from __future__ import annotations

import dataclasses

from penstock._clinic.rules.start.ps106_slow_worker_start import SlowWorkerStart
from penstock._lab.record import Thing
from tests.rules.seen import MB, facts, loader, passed, trial
from tests.rules.stuck import big, spawned


def passes(count, *, first=5.0, whole=6.0):
    return tuple(
        passed(
            number,
            began_s=number * 10.0,
            ended_s=number * 10 + whole,
            start_s=0.1,
            first_s=first,
            waits=(first, 0.01),
        )
        for number in range(count)
    )


def found(seen, iterators):
    return list(SlowWorkerStart().check(facts(trial(seen, iterators=iterators))))


def test_workers_that_start_again_in_every_epoch_are_told():
    (finding,) = found(spawned(method="forkserver", persistent_workers=False), passes(3))

    assert finding.message == (
        "`train_loader` waits 5.0 s for its workers in each of 3 epochs: each is started by forkserver,"
        " imports torch"
    )
    assert finding.prescription.change == "persistent_workers=False → persistent_workers=True"
    assert [each.measure for each in finding.experiments] == ["faster", "faster"]


def test_a_large_dataset_is_told_in_the_first_epoch():
    (finding,) = found(spawned(dataset=big(300 * MB)), passes(1))

    assert finding.message.endswith("imports torch and unpickles 300 MB")
    assert finding.prescription.fix.arguments == {"multiprocessing_context": "fork"}


def test_starts_of_a_second_add_up_where_they_are_most_of_many_passes():
    (finding,) = found(spawned(), passes(4, first=1.0, whole=1.2))
    assert finding.severity == "warning"
    (told,) = found(spawned(), passes(4, first=0.7, whole=1.0))
    assert told.severity == "info"  # less than three seconds in all
    (told,) = found(spawned(), passes(2, first=2.0, whole=2.5))
    assert told.severity == "info"
    assert not found(spawned(dataset=big(300 * MB)), passes(1, first=1.0))


def test_a_dataset_of_many_objects_is_told_in_the_first_epoch_where_that_is_most_of_it():
    words = Thing("dataset.words", "large-list", "dict", count=1_200_000)

    (finding,) = found(spawned(words), passes(1))

    assert finding.severity == "warning"
    assert finding.message.endswith("imports torch and unpickles 1,200,000 Python objects")
    assert not found(spawned(words), passes(1, whole=60.0))


def test_one_start_with_a_small_dataset_is_what_spawn_costs():
    assert [each.severity for each in found(spawned(), passes(1))] == ["info"]
    assert found(spawned(), passes(1, first=1.9, whole=2.0)) == []
    assert found(spawned(), passes(1, whole=60.0)) == []


def test_a_start_that_is_a_small_part_of_long_epochs_is_well():
    assert found(spawned(), passes(3, whole=60.0)) == []


def test_ranks_that_start_their_workers_at_the_same_time_are_only_told():
    of_ranks = [dataclasses.replace(each, pid=each.pid + rank) for rank in range(2) for each in passes(3)]

    assert [each.severity for each in found(spawned(), tuple(of_ranks))] == ["info"]
    assert [each.severity for each in found(spawned(dataset=big(300 * MB)), tuple(of_ranks))] == ["warning"]


def test_forked_workers_are_not_asked():
    assert found(loader(), passes(3)) == []


def test_a_loader_that_is_made_again_starts_its_workers_as_often():
    made = [spawned(persistent_workers=True)]
    made += [dataclasses.replace(made[0], key=made[0].key.replace("#0", f"#{number}")) for number in (1, 2)]
    folds = [
        dataclasses.replace(each, loader=loader.key) for loader, each in zip(made, passes(3), strict=True)
    ]

    observed = dataclasses.replace(trial(made[0], iterators=tuple(folds)), loaders=tuple(made))
    (finding,) = SlowWorkerStart().check(facts(observed))

    assert finding.prescription.fix.arguments == {"multiprocessing_context": "fork"}
    assert [each.change.settings for each in finding.experiments] == [{"multiprocessing_context": "fork"}]


def test_loaders_for_training_and_validation_pay_together():
    train = spawned(persistent_workers=False)
    valid = dataclasses.replace(train, key="train.py:40#0")
    starts = passes(4, first=2.6, whole=4.0)
    turns = [
        dataclasses.replace(each, loader=(train, valid)[number % 2].key) for number, each in enumerate(starts)
    ]
    observed = dataclasses.replace(trial(train, iterators=tuple(turns)), loaders=(train, valid))

    (finding,) = SlowWorkerStart().check(facts(observed))

    assert (finding.loader, finding.severity) == (train.key, "warning")
    assert [each.severity for each in found(train, starts[:2])] == ["info"]


def test_one_start_of_each_loader_is_what_spawn_costs():
    train = spawned(persistent_workers=True)
    valid = dataclasses.replace(train, key="train.py:40#0")
    keys = train.key, valid.key
    starts = [dataclasses.replace(each, loader=key) for each, key in zip(passes(2), keys, strict=True)]
    observed = dataclasses.replace(trial(train, iterators=tuple(starts)), loaders=(train, valid))

    assert list(SlowWorkerStart().check(facts(observed))) == []
