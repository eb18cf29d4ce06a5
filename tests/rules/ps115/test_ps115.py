"""PS115 handle-shared-across-fork."""

from __future__ import annotations

import dataclasses

import pytest

from penstock._clinic.rules.start.ps115_handle_shared_across_fork import HandleSharedAcrossFork
from tests.rules.seen import facts, failure, loader, samples, trial, zero
from tests.rules.stuck import frame, hung, silent, spawned, thing, worker

MOVED = thing("dataset.f", "open-file", mode="rb", offset_moved=True)
ZIP = thing("dataset.archive", "archive", type="zipfile.ZipFile", offset_moved=True)
BAD_CRC = failure(
    "Bad CRC-32 for file '7'", kind="zipfile.BadZipFile", phase="sample", worker=1, index=2, is_fatal=True
)


def found(observed, *rungs):
    return list(HandleSharedAcrossFork().check(facts(observed, *rungs)))


def test_an_offset_that_workers_move_is_a_mistake_even_where_nothing_was_wrong_yet():
    (finding,) = found(trial(loader(things=(MOVED,))))

    assert finding.message == (
        "the 2 workers of `train_loader` read through one file offset of `dataset.f`, opened before they were"
        " forked: samples may silently be wrong"
    )
    assert finding.severity == "error"
    assert finding.experiments[0].base.mends == ("widen-races",)
    assert finding.experiments[0].change.mends == ("reopen-handles",)


def test_wrong_samples_are_counted():
    observed = trial(loader(things=(MOVED,)), samples=samples("abxd", worker=0))

    (finding,) = found(observed, zero(samples=samples("abcd")))

    assert finding.message == (
        "1 of 4 samples of `train_loader` are silently wrong: its workers share one offset of `dataset.f`,"
        " opened"
        " before the fork"
    )
    assert finding.experiments[0].measure == "same"


def test_answers_that_workers_take_from_each_other_out_of_one_socket():
    observed = trial(
        loader(things=(thing("dataset.datasets[1].link", "socket"),)), samples=samples("abxd", worker=0)
    )

    (finding,) = found(observed, zero(samples=samples("abcd")))

    assert finding.message == (
        "1 of 4 samples of `train_loader` are silently wrong: its workers talk over one connection,"
        " `dataset.datasets[1].link`, made before the fork, and take each other's answers"
    )
    assert "pread" not in finding.prescription.change
    assert [each.change.mends[0] for each in finding.experiments] == ["rebuild-clients", "reopen-handles"]


@pytest.mark.parametrize("things", [("socket",), ("socket", "client")])
def test_a_socket_that_gives_the_right_answers_or_is_a_clients_own_is_left_alone(things):
    seen = loader(things=tuple(thing(f"dataset.{kind}", kind) for kind in things))
    wrong = "abxd" if "client" in things else "abcd"

    assert not found(trial(seen, samples=samples(wrong, worker=0)), zero(samples=samples("abcd")))


def test_an_archive_that_fails_only_in_workers_is_explained():
    observed = trial(loader(things=(ZIP,)), outcome="error", failures=(BAD_CRC,))

    (finding,) = found(observed, zero(samples=samples("abcd")))

    assert finding.message == (
        "`dataset.archive` was opened before the fork, and workers that read it together fail at sample 2:"
        " zipfile.BadZipFile: Bad CRC-32 for file '7'"
    )
    assert finding.experiments[0].measure == "gone"
    assert finding.stopped_at_s == 3.0


def test_an_archive_that_is_broken_without_workers_too_is_just_broken():
    also = failure(
        "Bad CRC-32 for file '7'", kind="zipfile.BadZipFile", phase="sample", index=2, is_fatal=True
    )
    still = thing("dataset.archive", "archive", type="zipfile.ZipFile", offset_moved=None)
    observed = trial(loader(things=(still,)), outcome="error", failures=(BAD_CRC,))

    assert found(observed, zero(outcome="error", failures=(also,))) == []


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (loader(things=(thing(mode="rb", offset_moved=False),)), "workers do not move it"),
        (loader(things=(thing(mode="rb"),)), "nobody knows of a move"),
        (loader(things=(thing(mode="a", offset_moved=True),)), "a log file is only written"),
        (loader(things=(MOVED,), num_workers=0), "no workers"),
        (loader(things=(MOVED,), num_workers=1), "one worker"),
        (spawned(MOVED), "spawn"),
        (loader(), "no handle"),
    ],
)
def test_handles_that_are_not_shared_or_not_used_are_left_alone(seen, why):
    assert found(trial(seen)) == []


def test_a_lock_between_processes_makes_it_an_info():
    (finding,) = found(trial(loader(things=(MOVED, thing("dataset.lock", "mp-lock")))))

    assert finding.severity == "info"


def test_a_handle_that_each_process_keeps_under_its_own_number_is_left_alone():
    own, others = (thing(f"store.FILES[{number}]", "hdf5") for number in (41, 42))

    def severities(held):
        seen = dataclasses.replace(loader(things=(held,)), pid=41)
        return [finding.severity for finding in found(trial(seen))]

    assert severities(own) == []
    assert severities(others) == ["info"]


@pytest.mark.parametrize(("kind", "severity"), [("hdf5", "warning"), ("lmdb", "info"), ("database", "info")])
def test_libraries_with_state_are_suspected(kind, severity):
    (finding,) = found(trial(loader(things=(thing("dataset.h", kind),))))

    assert (finding.severity, finding.confidence) == (severity, "suspected")


def test_random_augmentation_says_nothing_of_handles():
    seen = loader(things=(thing(mode="rb", offset_moved=False),))

    assert found(trial(seen, samples=samples("wxyz", worker=0)), zero(samples=samples("abcd"))) == []


PIPE = thing("dataset.proc.stdout", mode="rb", detail="5")


def test_an_answer_that_another_worker_has_read_is_explained():
    observed = hung(worker(1, frame(20), wchan="anon_pipe_read"), seen=loader(things=(PIPE,)))

    (finding,) = found(observed, zero())

    assert finding.message == (
        "worker 1 waits for ever for an answer from `dataset.proc.stdout`, opened before the fork:"
        " another worker has read it"
    )
    assert finding.experiments[0].change.settings == {"num_workers": 1}


def test_a_pipe_that_is_silent_without_workers_too_is_another_matter():
    observed = hung(worker(1, frame(20), wchan="anon_pipe_read"), seen=loader(things=(PIPE,)))

    assert found(observed, silent(zero())) == []
