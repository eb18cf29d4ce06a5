"""PS215 prefetch-memory."""

from __future__ import annotations

import dataclasses

from penstock._clinic.rules.limits.ps215_prefetch_memory import PrefetchMemory
from penstock._lab.plan import Change, Plan
from tests.rules.seen import GB, MB, facts, failure, host, loader, passed, trial


def found(observed):
    return list(PrefetchMemory().check(facts(observed)))


def keeping(prefetch, batch, *, length=1_000, **fields):
    seen = loader(prefetch_factor=prefetch, length=length)
    return trial(seen, iterators=(passed(batch_nbytes=batch),), **fields)


def test_batches_that_crowd_shared_memory_are_found():
    (finding,) = found(keeping(32, 2 * MB, host=host(shm_size=128 * MB)))

    assert finding.severity == "warning"
    assert finding.message == (
        "`train_loader` keeps 128 MB of batches ready (2 workers x 32 batches ahead x 2 MB), "
        "where /dev/shm has 128 MB"
    )
    assert finding.prescription.change == "prefetch_factor=32 → prefetch_factor=2"
    assert finding.experiments[0].measure == "smaller"


def test_it_is_an_error_when_the_program_fails():
    full = failure("unable to allocate shared memory(shm)", phase="collate", worker=0)
    (finding,) = found(keeping(32, 2 * MB, outcome="error", failures=(full,), host=host(shm_size=64 * MB)))

    assert finding.severity == "error"
    assert finding.experiments[0].measure == "gone"


def test_batches_that_crowd_memory_are_found():
    assert found(keeping(32, 8 * MB, host=host(shm_size=8 * GB, memory_limit=GB)))


def test_the_default_is_left_alone():
    assert not found(keeping(2, 20 * MB, host=host(shm_size=64 * MB)))


def test_a_large_factor_of_small_batches_is_left_alone():
    assert not found(keeping(64, 65_536))


def test_no_more_is_kept_than_the_loader_has():
    assert not found(keeping(64, 4 * MB, length=8, host=host(shm_size=128 * MB)))


def test_a_factor_that_is_not_to_blame_is_left_alone():
    assert not found(keeping(4, 200 * MB, host=host(shm_size=512 * MB, memory_limit=GB)))


def test_a_program_that_fails_for_another_reason_is_only_warned():
    (finding,) = found(keeping(32, 2 * MB, outcome="error", host=host(shm_size=64 * MB)))

    assert finding.severity == "warning"


def test_shared_memory_that_others_have_filled_is_not_laid_to_the_factor():
    full = failure("unable to allocate shared memory(shm)", phase="collate", worker=0)

    assert not found(keeping(8, 2 * MB, outcome="error", failures=(full,), host=host(shm_size=60 * MB)))


def test_with_a_larger_shared_memory_in_place_there_is_room():
    crowded = keeping(32, 2 * MB, host=host(shm_size=128 * MB))
    roomy = dataclasses.replace(crowded, plan=Plan(change=Change(shm_bytes=4 * GB)))

    assert found(crowded)
    assert not found(roomy)
