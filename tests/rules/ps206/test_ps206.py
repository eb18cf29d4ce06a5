"""PS206 view-of-large-storage."""

from __future__ import annotations

from penstock._clinic.rules.limits.ps206_view_of_large_storage import ViewOfLargeStorage
from tests.rules.seen import MB, facts, failure, fetches, loader, trial


def found(observed):
    return list(ViewOfLargeStorage().check(facts(observed)))


def test_a_batch_that_ships_far_more_than_it_holds_is_found():
    observed = trial(fetches=fetches(2, nbytes=16_384, storage_nbytes=400 * MB))

    (finding,) = found(observed)

    assert finding.severity == "warning"
    assert finding.message == (
        "a batch of `train_loader` holds 16 KB and ships 400 MB: its tensors are views, and each takes its "
        "whole storage along"
    )
    assert finding.experiments[0].measure == "smaller"
    assert finding.prescription.fix.name == "clone-sample"


def test_it_is_an_error_when_the_program_fails():
    full = failure("No space left on device (28)", phase="feeder", worker=0)
    observed = trial(
        outcome="hang", failures=(full,), fetches=fetches(2, nbytes=16_384, storage_nbytes=400 * MB)
    )

    assert found(observed)[0].severity == "error"


def test_crops_that_are_half_of_their_picture_are_left_alone():
    assert not found(trial(fetches=fetches(2, nbytes=20 * MB, storage_nbytes=40 * MB)))


def test_small_storages_are_left_alone():
    assert not found(trial(fetches=fetches(2, nbytes=64, storage_nbytes=MB)))


def test_storages_that_are_shared_already_are_left_alone():
    assert not found(trial(fetches=fetches(2, nbytes=16_384, storage_nbytes=0)))


def test_without_workers_nothing_is_shipped():
    observed = trial(loader(num_workers=0), fetches=fetches(2, nbytes=16_384, storage_nbytes=400 * MB))

    assert not found(observed)
