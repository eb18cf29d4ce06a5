"""PS803 result-not-picklable."""

from __future__ import annotations

from penstock._clinic.rules.failures.ps803_result_not_picklable import ResultNotPicklable
from tests.rules.seen import facts, failure, trial
from tests.rules.stuck import hung, worker

FED = """Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/queues.py", line 244, in _feed
    obj = _ForkingPickler.dumps(obj)
  File "/usr/lib/python3.11/multiprocessing/reduction.py", line 51, in dumps
    cls(buf, protocol).dump(obj)
TypeError: cannot pickle 'generator' object
"""


def found(observed):
    return list(ResultNotPicklable().check(facts(observed)))


def test_what_cannot_be_sent_is_named():
    (finding,) = found(hung(worker(0), worker(1), stderr=FED))

    assert finding.message == (
        "workers of `train_loader` return `generator`, which cannot be pickled: the batch was lost, and the"
        " program"
        " waits for ever"
    )
    assert finding.stopped_at_s == 3.0
    assert finding.experiments[0].change.mends == ("plain-results",)


def test_a_time_out_of_the_programs_own_does_not_hide_it():
    lost = failure("cannot pickle 'generator' object", kind="TypeError", phase="feeder", worker=0)
    ended = failure("DataLoader timed out after 4 seconds", phase="next", is_fatal=True)

    (finding,) = found(trial(outcome="error", failures=(lost, ended)))

    assert finding.message.endswith("and the program gave up")


def test_a_batch_that_cannot_be_rebuilt_counts():
    text = "Point.__init__() missing 1 required positional argument: 'y'"
    traceback = f"""Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1291, in _try_get_data
  File "/usr/lib/python3.11/multiprocessing/queues.py", line 122, in get
TypeError: {text}
"""
    ended = failure(text, kind="TypeError", traceback=traceback, phase="program", is_fatal=True)

    (finding,) = found(trial(outcome="error", failures=(ended,)))

    assert finding.cause == "result-not-picklable"


def test_an_exception_that_cannot_be_sent_is_something_else():
    raised = failure("bad header", kind="LocalErr", phase="sample", worker=0, index=3)
    said = FED.replace("cannot pickle 'generator' object", "Can't pickle local object 'f.<locals>.LocalErr'")

    assert found(hung(worker(0), failures=(raised,), stderr=said)) == []


def test_a_full_machine_is_something_else():
    said = FED.replace("cannot pickle 'generator' object", "unable to open shared memory object </torch_1>")

    assert found(hung(worker(0), stderr=said)) == []
    assert found(trial(stderr=FED)) == []


def test_a_queue_that_stayed_empty_because_a_worker_died_is_something_else():
    traceback = """Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1291, in _try_get_data
  File "/usr/lib/python3.11/multiprocessing/queues.py", line 114, in get
_queue.Empty
"""
    text = "DataLoader worker (pid(s) 13059) exited unexpectedly"
    ended = failure(text, kind="RuntimeError", traceback=traceback, phase="program", is_fatal=True)

    assert found(trial(outcome="error", failures=(ended,))) == []
