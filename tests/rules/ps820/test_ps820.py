"""PS820 stale-iterator-noise."""

from __future__ import annotations

from penstock._clinic.facts import Facts
from penstock._clinic.rules.endings.ps820_stale_iterator_noise import StaleIteratorNoise
from penstock._lab.record import IteratorSeen, LoaderSeen, Trial

NOISE = "Exception ignored in: <function __del__>\nAssertionError: can only test a child process\n"


def found(stderr):
    trial = Trial(
        loaders=(LoaderSeen(key="train.py:9#0", settings={"num_workers": 2}),),
        iterators=(IteratorSeen(loader="train.py:9#0", live_iterators=1),),
        stderr=stderr,
    )
    return list(StaleIteratorNoise().check(Facts(observed=trial)))


def test_the_noise_of_an_old_iterator_is_found():
    (finding,) = found(NOISE * 4)

    assert finding.severity == "warning"
    assert finding.evidence[0].value == "AssertionError: can only test a child process, 4 times"
    assert finding.evidence[1].value == "1"
    assert finding.experiments[0].change.use_penstock


def test_a_quiet_program_is_left_alone():
    assert not found("epoch 1: loss 0.3\n")
