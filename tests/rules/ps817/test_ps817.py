"""PS817 slow-shutdown."""

from __future__ import annotations

from penstock._clinic.facts import Facts
from penstock._clinic.rules.endings.ps817_slow_shutdown import SlowShutdown
from penstock._lab.record import IteratorSeen, LoaderSeen, Trial

LOADER = LoaderSeen(key="train.py:9#0", settings={"num_workers": 4}, length=100)


def found(*shutdowns, lasted_s=100.0):
    passes = tuple(
        IteratorSeen(loader=LOADER.key, batches=1, end="dropped", shutdown_s=each, workers=(1, 2, 3, 4))
        for each in shutdowns
    )
    return list(
        SlowShutdown().check(Facts(observed=Trial(seconds=lasted_s, loaders=(LOADER,), iterators=passes)))
    )


def test_a_loop_whose_end_waits_for_busy_workers_is_found():
    (finding,) = found(0.1, 10.1)

    assert finding.message == "leaving the loop after 1 batches took 10 s: 4 workers were busy"
    assert finding.experiments[0].change.use_penstock
    assert finding.experiments[0].drive == "script"


def test_workers_that_end_in_time_are_left_alone():
    assert not found(0.1, 1.2, None)


def test_an_end_that_costs_a_good_part_of_each_epoch_is_found():
    (finding,) = found(1.8, 1.7, 1.9, lasted_s=12.0)

    assert finding.message == "leaving the loop after 1 batches took 1.9 s: 4 workers were busy"
    assert not found(1.8, 1.7, 1.9, lasted_s=40.0)
    assert not found(1.8, lasted_s=2.0)
