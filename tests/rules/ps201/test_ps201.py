"""PS201 shm-exhausted."""

from __future__ import annotations

import signal

from penstock._clinic.rules.limits.ps201_shm_exhausted import ShmExhausted
from penstock._lab.record import Death
from tests.rules.seen import KEY, MB, facts, failure, host, loader, passed, trial, vitals, zero

FULL = (
    "Caught RuntimeError in DataLoader worker process 0.\n"
    "RuntimeError: unable to allocate shared memory(shm) for file </torch_7>: No space left on device (28)\n"
)
SMALL = host(shm_size=64 * MB, shm_free=64 * MB)


def found(observed, *rungs):
    return list(ShmExhausted().check(facts(observed, *rungs)))


def test_an_error_that_says_so_is_set_against_the_formula():
    observed = trial(
        outcome="error", host=SMALL, failures=(failure(FULL),), iterators=(passed(batches=0, batch_nbytes=0),)
    )

    (finding,) = found(observed, zero(iterators=(passed(workers=(), batch_nbytes=17 * MB),)))

    assert finding.severity == "error"
    assert finding.message == (
        "`train_loader` fails because /dev/shm (64 MB) is too small for the batches in flight: "
        "2 workers x 2 batches ahead x 17 MB want 68 MB"
    )
    assert finding.experiments[0].change.shm_bytes >= 1 << 30
    assert finding.prescription.change.startswith("prefetch_factor=2 → prefetch_factor=1")
    assert finding.remedy.change.settings == {"prefetch_factor": 1}
    assert finding.stopped_at_s == 3.0


def test_fewer_batches_ahead_are_prescribed_where_that_is_enough():
    seen = loader(prefetch_factor=4)
    observed = trial(
        seen,
        outcome="error",
        host=SMALL,
        failures=(failure(FULL),),
        iterators=(passed(batch_nbytes=10 * MB),),
    )

    (finding,) = found(observed)

    assert finding.prescription.fix.arguments == {"option": "prefetch_factor", "old": 4, "new": 2}


def test_a_hang_with_the_text_of_a_feeder_thread_is_found():
    observed = trial(
        outcome="hang",
        host=SMALL,
        iterators=(passed(end="open", waiting_since_s=4.0),),
        stderr="RuntimeError: unable to write to file </torch_9_1>: No space left on device (28)\n",
    )

    (finding,) = found(observed)

    assert finding.loader == KEY
    assert "hangs" in finding.message
    assert finding.stopped_at_s == 4.0


def test_a_hang_with_a_full_mount_is_found_without_a_word():
    observed = trial(outcome="hang", host=SMALL, vitals=vitals(shm_used=62 * MB))

    assert len(found(observed)) == 1


def test_a_worker_killed_by_a_bus_error_in_a_small_mount_is_found():
    death = Death(pid=12, worker=1, loader=KEY, status=-signal.SIGBUS, at_s=2.0)

    (finding,) = found(trial(outcome="crash", host=SMALL, deaths=(death,)))

    assert finding.evidence[0].value == "worker 1 was killed by SIGBUS"
    assert finding.stopped_at_s == 2.0


def test_a_bus_error_with_room_in_shared_memory_is_somebody_elses():
    death = Death(pid=12, worker=1, loader=KEY, status=-signal.SIGBUS)

    assert not found(trial(outcome="crash", deaths=(death,), vitals=vitals(shm_used=MB)))


def test_a_full_disk_is_not_shared_memory():
    full = failure("[Errno 28] No space left on device: '/data/cache/7.npy'", kind="OSError", phase="sample")

    assert not found(trial(outcome="error", host=SMALL, failures=(full,)))


def test_a_hang_for_another_reason_is_left_alone():
    assert not found(trial(outcome="hang", vitals=vitals(shm_used=MB)))


def test_a_healthy_loader_that_fills_half_of_it_is_left_alone():
    assert not found(trial(host=SMALL, vitals=vitals(shm_used=40 * MB)))


def test_batches_that_take_but_little_are_not_blamed():
    death = Death(pid=12, worker=1, loader=KEY, status=-signal.SIGBUS, at_s=2.0)
    observed = trial(outcome="crash", host=SMALL, deaths=(death,), iterators=(passed(batch_nbytes=64),))

    (finding,) = found(observed)

    assert finding.message == (
        "`train_loader` fails because /dev/shm (64 MB) is full: its batches in flight take 256 bytes, and "
        "the dataset puts more there itself"
    )
    assert finding.remedy is None
