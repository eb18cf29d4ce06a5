"""PS214 per-worker-cache."""

from __future__ import annotations

import dataclasses

from penstock._clinic.rules.limits.ps214_per_worker_cache import PerWorkerCache
from penstock._lab.record import DatasetSeen
from tests.rules.seen import GB, MB, facts, fetches, host, loader, passed, samples, trial, vitals, zero

LARGE = DatasetSeen(type="Pictures", length=4_000)


def found(observed):
    return list(PerWorkerCache().check(facts(observed)))


def filling(_, number):
    return {"dataset.cache": 4 * (number + 1)}


def rising(_, number):
    return 20 * MB + 3 * MB * number


def test_a_cache_that_every_worker_fills_is_found():
    observed = trial(loader(dataset=LARGE), fetches=fetches(40, uss=rising, caches=filling))

    (finding,) = found(observed)

    assert finding.severity == "warning"
    assert "each of 2 workers of `train_loader` fills a cache of its own, `dataset.cache`" in finding.message
    assert finding.message.endswith("2.9 GB once the dataset has been read")
    assert finding.experiments[0].change.mends == ("no-cache",)


def test_persistent_workers_end_with_a_copy_each():
    seen = loader(dataset=LARGE, persistent_workers=True)

    (finding,) = found(trial(seen, fetches=fetches(40, uss=rising, caches=filling)))

    assert finding.message.endswith("5.9 GB once the dataset has been read")


def test_a_cache_that_killed_a_worker_matters_at_any_size():
    small = DatasetSeen(type="Pictures", length=40)
    observed = trial(
        loader(dataset=small),
        outcome="oom",
        host=host(oom_kills=1, memory_limit=GB),
        fetches=fetches(10, uss=lambda _, number: 20 * MB + 40 * MB * number, caches=filling),
    )

    assert found(observed)[0].severity == "error"


def test_a_bounded_cache_that_is_full_is_left_alone():
    def bounded(_, number):
        return {"dataset._load": min(4 * number, 64)}

    observed = trial(loader(dataset=LARGE), fetches=fetches(40, uss=rising, caches=bounded))

    assert not found(observed)


def test_a_large_cache_that_every_worker_has_all_of_is_found():
    def bounded(_, number):
        return {"dataset.volumes": min(4 * number, 40)}

    def levelled(_, number):
        return 20 * MB + 10 * MB * min(number, 10)

    (finding,) = found(trial(loader(dataset=LARGE), fetches=fetches(40, uss=levelled, caches=bounded)))

    assert "`dataset.volumes`" in finding.message
    assert finding.message.endswith("200 MB once the dataset has been read")


def test_a_cache_of_small_things_is_left_alone():
    observed = trial(
        loader(dataset=LARGE),
        fetches=fetches(40, uss=lambda _, number: 20 * MB + 4_096 * number, caches=filling),
    )

    assert not found(observed)


def test_a_cache_of_a_small_dataset_is_left_alone():
    small = DatasetSeen(type="Pictures", length=200)

    assert not found(trial(loader(dataset=small), fetches=fetches(40, uss=rising, caches=filling)))


def test_an_array_that_every_worker_fills_is_found():
    filled = DatasetSeen(type="Pictures", length=4_000, mutated=("dataset.decoded",))
    still = (*samples(range(10)), *samples(range(10), iterator=1))
    rung = zero(loaders=(loader(dataset=filled),), samples=still)
    observed = trial(loader(dataset=LARGE), fetches=fetches(40, uss=rising))

    (finding,) = PerWorkerCache().check(facts(observed, rung))

    assert "fills a cache of its own, `dataset.decoded`" in finding.message


def test_workers_that_are_killed_before_they_can_tell_are_foretold_by_the_process_without_them():
    seen = loader(dataset=LARGE, num_workers=4)
    killed = trial(seen, outcome="oom", host=host(oom_kills=1, memory_limit=GB))
    full = tuple(
        dataclasses.replace(fetch, worker=-1)
        for fetch in fetches(4, workers=1, caches={"dataset.store.scenes": 19})
    )

    def alone(gained, **fields):
        begins = (passed(workers=(), began_s=0.15),)
        grown = vitals(main_rss=lambda number: 200 * MB + (gained if number > 1 else 0))
        return zero(iterators=begins, vitals=grown, **{"fetches": full, **fields})

    def check(observed, rung):
        return list(PerWorkerCache().check(facts(observed, rung)))

    (finding,) = check(killed, alone(300 * MB))

    assert finding.severity == "error"
    assert finding.message.endswith(
        "`dataset.store.scenes`, and throws it away after the epoch: 1.2 GB once the dataset has been read"
    )
    assert not check(killed, alone(10 * MB))  # it was something else
    assert not check(killed, alone(300 * MB, fetches=()))
    assert not check(trial(seen), alone(300 * MB))
