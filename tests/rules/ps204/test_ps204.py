"""PS204 socket-path-too-long."""

from __future__ import annotations

from penstock._clinic.rules.limits.ps204_socket_path_too_long import SocketPathTooLong
from tests.rules.seen import facts, failure, host, passed, trial


def found(observed):
    return list(SocketPathTooLong().check(facts(observed)))


def test_a_socket_that_cannot_be_made_is_found():
    observed = trial(
        outcome="hang",
        host=host(tmpdir_length=96),
        failures=(failure("AF_UNIX path too long", kind="OSError", phase="feeder", worker=0),),
        iterators=(passed(end="open", batches=0),),
    )

    (finding,) = found(observed)

    assert finding.message == (
        "`train_loader` hangs because the temporary directory has a path of 96 characters, and a worker's "
        "socket below TMPDIR may have 107 in all"
    )
    assert finding.experiments[0].change.env == {"TMPDIR": "/tmp"}


def test_a_long_path_that_hurts_nobody_is_left_alone():
    assert not found(trial(host=host(tmpdir_length=96)))
