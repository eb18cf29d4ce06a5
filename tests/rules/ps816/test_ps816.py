"""PS816 pin-thread-died."""

from __future__ import annotations

from penstock._clinic.facts import Facts
from penstock._clinic.rules.endings.ps816_pin_thread_died import PinThreadDied
from penstock._lab.record import Failure, IteratorSeen, LoaderSeen, Trial

LOADER = LoaderSeen(key="train.py:9#0", settings={"num_workers": 2, "pin_memory": True})


def found(*failures, stderr=""):
    trial = Trial(
        outcome="error",
        loaders=(LOADER,),
        iterators=(IteratorSeen(loader=LOADER.key, end="raised"),),
        failures=failures,
        stderr=stderr,
    )
    return list(PinThreadDied().check(Facts(observed=trial)))


def test_torch_says_that_the_thread_is_gone():
    died = Failure(
        "RuntimeError", "Pin memory thread exited unexpectedly", phase="next", at_s=7.5, is_fatal=True
    )

    (finding,) = found(died)

    assert finding.message == "the thread that pins batches ended"
    assert finding.loader == LOADER.key
    assert finding.stopped_at_s == 7.5
    assert finding.experiments[0].change.settings == {"pin_memory": False}


def test_the_exception_of_the_thread_is_named():
    died = Failure("RuntimeError", "Caught OSError in pin memory thread for device 0.", phase="next")

    (finding,) = found(died)

    assert finding.message == "the thread that pins batches ended by OSError"


def test_what_was_only_printed_counts_too():
    assert found(stderr="RuntimeError: Pin memory thread exited unexpectedly\n")


def test_other_failures_are_other_illnesses():
    assert not found(Failure("RuntimeError", "DataLoader worker (pid 3) exited unexpectedly"))
