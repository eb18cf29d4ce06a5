"""Which failure is the real one."""

from __future__ import annotations

import pytest

from penstock._clinic import failures
from penstock._clinic.facts import Facts
from penstock._lab.plan import Change, Plan
from penstock._lab.record import Death, Failure, IteratorSeen, LoaderSeen, SampleSeen, Site, Trial

KEY = "train.py:31#0"
WRAPPED = """Caught ValueError in DataLoader worker process 3.
Original Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 374, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/me/data.py", line 12, in __getitem__
    return self.read(i)
  File "/home/me/data.py", line 20, in read
    raise ValueError("too short")
ValueError: too short
"""


def loader(workers=2, **fields):
    return LoaderSeen(KEY, settings={"num_workers": workers}, **fields)


def trial(*seen, workers=2, **fields):
    defaults = {
        "outcome": "error",
        "loaders": (loader(workers),),
        "iterators": (IteratorSeen(KEY, workers=(11, 12)),),
    }
    return Trial(failures=seen, **{**defaults, **fields})


def rung(workers, *seen, **fields):
    plan = Plan(drive="loader", loader=KEY, change=Change(settings={"num_workers": workers}))
    return trial(*seen, **{"plan": plan, "outcome": "error" if seen else "ok", **fields})


def test_what_torch_wrapped_is_unwrapped():
    plain = failures.unwrap(Failure("ValueError", WRAPPED, phase="next"))

    assert (plain.type, plain.text, plain.worker) == ("ValueError", "too short", 3)
    assert plain.site == Site("/home/me/data.py", 20, "read")


def test_what_nobody_wrapped_stays():
    plain = Failure("ValueError", "too short", phase="next")

    assert failures.unwrap(plain) is plain
    assert failures.wrapped_as(plain) is None


def test_the_root_is_what_the_sample_raised():
    sample = Failure("data.Short", "too short", phase="sample", worker=3, index=7, at_s=2.0)
    echo = Failure("RuntimeError", WRAPPED.replace("ValueError", "Short"), phase="next", at_s=2.1)
    ended = Failure(
        "RuntimeError", WRAPPED.replace("ValueError", "Short"), phase="program", at_s=2.2, is_fatal=True
    )

    root = failures.root(trial(sample, echo, ended))

    assert (root.type, root.index, root.is_fatal) == ("data.Short", 7, True)


def test_a_failure_of_the_program_is_not_blamed_on_a_worker():
    sample = Failure("ValueError", "too short", phase="sample", worker=0, index=7, at_s=2.0)
    ended = Failure("TypeError", "unpack", phase="program", at_s=2.2, is_fatal=True)

    assert failures.root(trial(sample, ended)).type == "TypeError"


def test_a_program_that_ends_well_has_no_root():
    assert failures.root(trial(Failure("ValueError", phase="next"), outcome="ok")) is None
    assert failures.root(trial(outcome="hang")) is None


def test_the_first_of_two_ends_counts():
    one = Failure("ValueError", phase="program", at_s=2.0, is_fatal=True)
    other = Failure("OSError", phase="program", at_s=3.0, is_fatal=True)

    assert failures.root(trial(other, one)).type == "ValueError"


def test_a_failure_of_a_loader_inside_a_worker_belongs_to_the_worker():
    inner = Failure("AssertionError", "daemonic", phase="start", loader="inner", pid=12, at_s=1.0)
    said = WRAPPED.replace("ValueError", "AssertionError").replace("process 3", "process 1")
    ended = Failure("AssertionError", said, phase="program", at_s=2.0, is_fatal=True)

    root = failures.root(trial(inner, ended))

    assert (root.loader, root.worker, root.phase) == (KEY, 1, "sample")


def test_only_failures_of_the_program_as_it_is_count():
    observed = trial(outcome="ok")
    failed = Failure("TypeError", "NoneType", phase="sample", is_fatal=True)

    assert list(failures.cases(Facts(observed=observed, ladder=(rung(0, failed),)))) == []
    (case,) = failures.cases(Facts(observed=observed, ladder=(rung(2, failed),)))
    assert case.workers == 2


def test_what_the_program_catches_is_marked():
    sample = Failure(
        "ValueError", "too short", phase="sample", worker=3, index=7, site=Site("/home/me/data.py", 20)
    )
    echo = Failure("ValueError", WRAPPED, phase="next", loader=KEY)

    (case,) = failures.cases(Facts(observed=trial(sample, echo, outcome="ok")))

    assert case.is_caught
    assert case.failure.index == 7


def test_whether_the_same_sample_loads_without_workers():
    failed = Failure("ValueError", "x", phase="sample", worker=0, index=7, loader=KEY, is_fatal=True)
    elsewhere = rung(0, samples=(SampleSeen(KEY, index=1),))
    there = rung(0, samples=(SampleSeen(KEY, index=7),))
    also = rung(0, Failure("ValueError", "x", phase="sample", index=7, is_fatal=True))

    def case(zero):
        (found,) = failures.cases(Facts(observed=trial(failed), ladder=(zero,)))
        return found.passes_at_zero, found.at_zero is not None

    assert case(there) == (True, False)
    assert case(elsewhere) == (False, False)
    assert case(also) == (False, True)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "RuntimeError: unable to resize file <filename not specified> to the right size",
            "tensor-freed-while-pickling",
        ),
        ("AssertionError: daemonic processes are not allowed to have children", "nested-workers"),
        ("OSError: [Errno 28] No space left on device", "shm-exhausted"),
        ("KeyError: 'label'", None),
    ],
)
def test_texts_that_say_their_own_cause(text, cause):
    assert failures.says(text) == cause


def test_tracebacks_are_read_in_order_and_inside_one_another():
    head = 'Traceback (most recent call last):\n  File "/home/me/a.py", line 3, in <module>\n'
    text = f"{head}RuntimeError: {WRAPPED}"

    assert [(each.type, each.text) for each in failures.printed("noise\n" + text)] == [
        ("RuntimeError", "Caught ValueError in DataLoader worker process 3."),
        ("ValueError", "too short"),
    ]


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/home/me/train.py", True),
        ("/usr/lib/python3.11/queue.py", False),
        ("/home/me/.venv/lib/python3.12/site-packages/torch/nn.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("/x/penstock/_lab/inside/fetches.py", False),
    ],
)
def test_whose_code_a_file_is(file, own):
    assert failures.is_users(file) is own


LOST = Failure(
    "RuntimeError", "DataLoader worker (pid(s) 11) exited unexpectedly", phase="next", is_fatal=True
)


def test_a_dead_worker_explains_a_lost_one():
    death = Death(11, worker=0, status=3)

    assert failures.crash(trial(LOST, deaths=(death,))) is death


def test_workers_that_torch_ends_after_an_exception_are_no_crash():
    raised = Failure("KeyError", "'the'", phase="program", is_fatal=True)

    assert (
        failures.crash(trial(raised, deaths=(Death(11, worker=0, status=-15), Death(12, worker=1, status=1))))
        is None
    )


def test_a_program_that_vanishes_is_a_crash():
    said = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\nKeyError: 1\n'

    assert failures.crash(trial(outcome="crash", status=7)).status == 7
    assert failures.crash(trial(outcome="crash", status=7, ended_by="memory")) is None
    assert failures.crash(trial(outcome="error", status=1, stderr=said)) is None
    assert failures.crash(trial(outcome="error", status=1, iterators=())) is None


def test_an_exception_that_a_feeder_refused_is_found_by_its_name():
    raised = Failure("m.f.<locals>.Broken", "bad", phase="sample", worker=1, index=5)
    refused = failures.Raised("AttributeError", "Can't pickle local object 'f.<locals>.Broken'")

    assert failures.unsent(trial(raised), refused) is raised
    assert failures.unsent(trial(), refused) is None


def test_what_a_worker_has_raised_counts_though_the_trial_ended_before_the_program_heard_of_it():
    odd = Failure("RuntimeError", "stack expects", phase="collate", loader=KEY, worker=1, pid=12)
    heard = Failure("RuntimeError", "stack expects", phase="next", loader=KEY)
    left = (IteratorSeen(KEY, workers=(11, 12), end="dropped"),)

    def counts(*seen, **fields):
        cut = trial(*seen, **{"outcome": "ok", "ended_by": "enough", **fields})
        return [case for case in failures.cases(Facts(observed=cut)) if not case.is_caught]

    (case,) = counts(odd)

    assert case.failure is odd
    assert case.loader.key == KEY
    assert not counts(odd, ended_by="itself")
    assert not counts(odd, heard)  # it goes on from such failures
    assert not counts(odd, iterators=left)  # the program had left that pass before it came so far
