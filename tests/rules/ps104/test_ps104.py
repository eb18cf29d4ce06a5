"""PS104 tensor-freed-while-pickling."""

from __future__ import annotations

from penstock._clinic.rules.start.ps104_tensor_freed_while_pickling import TensorFreedWhilePickling
from tests.rules.seen import facts, failure, loader, trial
from tests.rules.stuck import spawned, thing

TEXT = "unable to resize file <filename not specified> to the right size: Invalid argument (22)"
GONE = "DataLoader worker (pid(s) 11) exited unexpectedly"


def found(seen):
    broken = (failure(TEXT, phase="start", worker=0), failure(GONE, is_fatal=True))
    return list(TensorFreedWhilePickling().check(facts(trial(seen, outcome="error", failures=broken))))


def test_the_generator_is_named():
    (finding,) = found(spawned(thing("dataset.rng", "torch-generator")))

    assert finding.message == (
        "the state of `dataset.rng` is freed before workers of `train_loader`, started by spawn, have"
        " received it"
    )
    assert [each.change.mends for each in finding.experiments] == [("keep-pickled-tensors",), ()]


def test_without_a_generator_it_is_getstate():
    (finding,) = found(spawned())

    assert finding.message.startswith("a tensor made in `__getstate__` is freed")


def test_under_fork_nothing_is_shipped():
    assert found(loader(things=(thing("dataset.rng", "torch-generator"),))) == []
