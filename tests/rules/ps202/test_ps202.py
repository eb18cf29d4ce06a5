"""PS202 fd-exhausted."""

from __future__ import annotations

from penstock._clinic.rules.limits.ps202_fd_exhausted import FdExhausted
from tests.rules.seen import facts, failure, host, loader, passed, trial, vitals, zero

TEXT = "Too many open files. Communication with the workers is no longer possible."


def found(observed, *rungs):
    return list(FdExhausted().check(facts(observed, *rungs)))


def test_a_program_that_keeps_its_batches_is_told_so():
    observed = trial(
        outcome="error",
        host=host(nofile=256),
        failures=(failure(TEXT),),
        iterators=(passed(batches=110, kept=108, tensors_per_batch=2, end="raised"),),
        vitals=vitals(main_fds=lambda batch: 20 + 2 * batch),
    )

    (finding,) = found(observed)

    assert finding.message == (
        "`train_loader` fails at the limit of 256 file descriptors: the program still holds 108 batches of "
        "2 tensors, each with a descriptor of its own"
    )
    assert [each.drive for each in finding.experiments] == ["script", "script"]
    assert finding.experiments[0].change.mends == ("drop-kept",)
    assert finding.prescription.fix.name == "detach-kept"


def test_many_tensors_in_a_batch_are_told_where_nothing_is_kept():
    observed = trial(
        outcome="hang",
        host=host(nofile=256),
        failures=(
            failure(
                "unable to open shared memory object </torch_9> in read-write mode: Too many open files (24)",
                phase="feeder",
                worker=1,
            ),
        ),
        iterators=(passed(batches=3, tensors_per_batch=192, end="open"),),
    )

    (finding,) = found(observed)

    assert "hangs at the limit of 256 file descriptors: a batch has 192 tensors" in finding.message
    assert finding.experiments[0].change.mends == ("pack-tensors",)
    assert finding.experiments[1].change.nofile == 65_536
    assert finding.prescription.fix.name == "pack-batch"


def test_an_epoch_that_leads_past_the_limit_is_foretold():
    observed = trial(
        loader(length=2_000),
        iterators=(passed(batches=40, kept=38, tensors_per_batch=2, end="open"),),
        vitals=vitals(main_fds=lambda batch: 20 + 2 * batch),
    )

    (finding,) = found(observed)

    assert finding.severity == "warning"
    assert "4,018 by the end of the epoch of 2,000 batches, where 1,024 are allowed" in finding.message
    assert finding.experiments[0].measure == "smaller"


def test_a_kept_epoch_that_ends_below_the_limit_is_left_alone():
    observed = trial(
        loader(length=200),
        iterators=(passed(batches=40, kept=38, end="open"),),
        vitals=vitals(main_fds=lambda batch: 20 + 2 * batch),
    )

    assert not found(observed)


def test_a_program_that_lets_go_of_its_batches_is_left_alone():
    observed = trial(
        loader(length=20_000),
        iterators=(passed(batches=40, kept=1),),
        vitals=vitals(main_fds=lambda batch: 20 + batch),
    )

    assert not found(observed)


def test_a_dataset_that_leaks_its_own_files_is_not_the_loaders_matter():
    own = failure("[Errno 24] Too many open files: 'a.txt'", kind="OSError", phase="sample", index=900)
    observed = trial(outcome="error", failures=(own,))

    assert not found(observed, zero(outcome="error", failures=(own,)))


def test_a_shared_memory_object_that_is_gone_is_another_matter():
    gone = failure(
        "unable to open shared memory object </torch_9_1> in read-write mode: No such file or directory (2)"
    )

    assert not found(trial(outcome="error", failures=(gone,)))
