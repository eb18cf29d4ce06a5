"""PS817 slow-shutdown."""

from __future__ import annotations

from penstock._clinic.facts import Facts
from penstock._clinic.rules.endings.ps817_slow_shutdown import SlowShutdown
from penstock._lab.record import IteratorSeen, LoaderSeen, Trial

LOADER = LoaderSeen(key="train.py:9#0", settings={"num_workers": 4}, length=100)


def found(*shutdowns):
    passes = tuple(
        IteratorSeen(loader=LOADER.key, batches=1, end="dropped", shutdown_s=each, workers=(1, 2, 3, 4))
        for each in shutdowns
    )
    return list(SlowShutdown().check(Facts(observed=Trial(loaders=(LOADER,), iterators=passes))))


def test_a_loop_whose_end_waits_for_busy_workers_is_found():
    (finding,) = found(0.1, 10.1)

    assert finding.message == "leaving the loop after 1 batches took 10 s: 4 workers were busy"
    assert finding.experiments[0].change.use_penstock
    assert finding.experiments[0].drive == "script"


def test_workers_that_end_in_time_are_left_alone():
    assert not found(0.1, 1.2, None)
