"""PS114 client-not-fork-safe."""

from __future__ import annotations

from penstock._clinic.rules.start.ps114_client_not_fork_safe import ClientNotForkSafe
from penstock._lab.record import Frame
from tests.rules.seen import facts, failure, loader, samples, trial, zero
from tests.rules.stuck import LIB, frame, hung, source, thing, worker

TEXT = (
    "\n" * 19 + "return asyncio.run_coroutine_threadsafe(get(k), self.io).result()\nx = self.sock.recv(10)\n"
)
FUTURE = (
    Frame("wait", f"{LIB}/threading.py", 320),
    Frame("result", f"{LIB}/concurrent/futures/_base.py", 451),
)
SOCKET = thing("dataset.sock", "socket")
CLIENT = thing("dataset.store", "client")


def found(observed, *rungs):
    return list(ClientNotForkSafe().check(facts(observed, *rungs, source=source(TEXT))))


def test_an_event_loop_that_did_not_survive_is_named():
    (finding,) = found(hung(worker(0, *FUTURE, frame(20, "get"))))

    assert finding.message == (
        "worker 0 waits for ever in `return asyncio.run_coroutine_threadsafe(get(k), self.io).re…`, whose"
        " client was"
        " made before the worker was forked"
    )
    assert [each.change.mends for each in finding.experiments] == [
        ("rebuild-clients",),
        ("restart-threads",),
        ("reopen-handles",),
        (),
    ]


def test_a_library_for_remote_files_is_known():
    sync = (*FUTURE, Frame("sync", f"{LIB}/site-packages/fsspec/asyn.py", 99))

    (finding,) = found(hung(worker(0, *sync, frame(3, "read", file="/other/module.py"))))

    assert finding.message.startswith("worker 0 waits for ever in a client at module.py:3, whose client")


def test_a_librarys_own_refusal_is_told():
    refused = failure("This class is not fork-safe", phase="sample", worker=0, index=3, is_fatal=True)

    (finding,) = found(trial(outcome="error", failures=(refused,)))

    assert finding.message == (
        "a client was made before the fork and fails in workers: RuntimeError: This class is not fork-safe"
    )


def test_one_connection_of_all_workers_that_hangs_only_with_workers():
    observed = hung(worker(0, frame(21), wchan="wait_woken"), seen=loader(things=(SOCKET,)))

    (finding,) = found(observed, zero())

    assert finding.cause == "client-not-fork-safe"


def test_answers_that_workers_take_from_each_other():
    observed = trial(loader(things=(SOCKET, CLIENT)), samples=samples("abcx", worker=0))

    (finding,) = found(observed, zero(samples=samples("abcd")))

    assert finding.message == (
        "1 of 4 samples of `train_loader` differ from num_workers=0: all workers talk over the one"
        " connection of"
        " `dataset.store`"
    )


def test_a_class_of_the_programs_own_that_keeps_a_socket_is_a_client():
    held = thing("dataset.dataset.store.sock", "socket")
    observed = trial(loader(things=(held,)), samples=samples("abcx", worker=0))

    (finding,) = found(observed, zero(samples=samples("abcd")))

    assert "`dataset.dataset.store.sock`" in finding.message


def test_answers_out_of_a_bare_socket_are_something_else():
    observed = trial(loader(things=(SOCKET,)), samples=samples("abcx", worker=0))

    assert found(observed, zero(samples=samples("abcd"))) == []


def test_a_client_with_which_all_is_well_is_no_finding():
    observed = trial(loader(things=(CLIENT,)), samples=samples("abcd", worker=0))

    assert found(observed, zero(samples=samples("abcd"))) == []


def test_a_dead_lock_of_the_users_own_is_something_else():
    assert found(hung(worker(0, frame(20, file="/other/module.py")))) == []
