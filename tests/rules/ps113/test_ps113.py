"""PS113 cuda-before-fork."""

from __future__ import annotations

from penstock._clinic.rules.start.ps113_cuda_before_fork import CudaBeforeFork
from penstock._lab.record import Site
from tests.rules.seen import facts, failure, loader, trial
from tests.rules.stuck import FILE, spawned, thing

TEXT = "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, use spawn"


def found(observed):
    return list(CudaBeforeFork().check(facts(observed)))


def test_torchs_refusal_is_told_with_its_line():
    refused = failure(TEXT, phase="sample", worker=0, index=3, site=Site(FILE, 22), is_fatal=True)

    (finding,) = found(trial(outcome="error", failures=(refused,)))

    assert finding.message == (
        "a forked worker of `train_loader` uses CUDA at train.py:22, which its parent has used before"
    )
    assert finding.severity == "error"


def test_tensors_on_a_device_that_go_to_forked_workers_are_suspected():
    (finding,) = found(trial(loader(things=(thing("dataset.table", "cuda-tensor"),))))

    assert finding.message == "`dataset.table` is on a device and goes to forked workers of `train_loader`"
    assert finding.confidence == "suspected"


def test_without_workers_or_under_spawn_they_may_be_kept():
    assert found(trial(loader(things=(thing(kind="cuda-tensor"),), num_workers=0))) == []
    assert found(trial(spawned(thing(kind="cuda-tensor")))) == []
