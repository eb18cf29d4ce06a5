"""Why a program could not be examined."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from penstock._clinic.reasons import (
    PAGES,
    could_not_run,
    failed_elsewhere,
    not_run,
    not_shipped,
    raised_by,
    refused,
    stood_still,
)
from penstock._lab.record import (
    Death,
    Failure,
    Frame,
    IteratorSeen,
    LoaderSeen,
    ProcessLook,
    Site,
    ThreadLook,
    Trial,
)
from penstock._lab.target import TargetError


def raised(name, text="", traceback="", site=Site("train.py", 3)):  # noqa: B008
    failure = Failure(name, text, traceback, phase="program", site=site, is_fatal=True)
    return Trial(outcome="error", status=1, failures=(failure,), stderr=traceback)


def stderr(text, status=1):
    return Trial(outcome="error", status=status, stderr=text)


def stuck(function="main", ended_by="time"):
    frames = (Frame(function, "/usr/lib/python3.11/x.py", 1), Frame("main", "/home/me/train.py", 12))
    look = ProcessLook(5, threads=(ThreadLook(5, frames=frames),))
    return Trial(ended_by=ended_by, outcome="ok", seconds=50.0, looks=(look,))


KEY_TRACE = (
    "File \"/usr/lib/python3.11/os.py\", line 679\n    raise KeyError(key) from None\nKeyError: 'DATA'"
)

CASES = [
    ("PS902", Trial(status=0), "none was made"),
    ("PS902", Trial(status=0, loaders=(LoaderSeen("a"),)), "1 loader was made, and never iterated"),
    ("PS903", raised("ZeroDivisionError", "division by zero"), "train.py:3"),
    ("PS904", raised("ModuleNotFoundError", "No module named 'timm'"), "'timm'"),
    ("PS904", raised("ImportError", "cannot import name 'x' from 'y'"), "cannot import name"),
    (
        "PS905",
        stderr("usage: train.py [-h] --data DATA\nerror: the following arguments are required", 2),
        "--data",
    ),
    ("PS905", stderr("Usage: train.py [OPTIONS]\nError: Missing option '--data'.", 2), "Missing option"),
    ("PS905", raised("IndexError", "list index out of range", "path = sys.argv[1]"), "sys.argv"),
    ("PS906", raised("EOFError", "EOF when reading a line"), "train.py:3"),
    ("PS906", stuck("input"), "/home/me/train.py:12"),
    ("PS907", raised("AssertionError", "Torch not compiled with CUDA enabled"), "CUDA"),
    ("PS907", raised("RuntimeError", "No CUDA GPUs are available"), "GPU"),
    ("PS907", raised("AssertionError", "", "    assert torch.cuda.is_available()"), "GPU"),
    ("PS907", stderr("error: this script requires a GPU\n"), "requires a GPU"),
    ("PS908", raised("FileNotFoundError", "[Errno 2] No such file or directory: '/d/x.csv'"), "/d/x.csv"),
    ("PS909", stuck(), "/home/me/train.py:12"),
    ("PS909", stuck(ended_by="stall"), "still waiting"),
    ("PS910", Trial(outcome="error", ended_by="output", stdout="x" * 5000), "prints"),
    ("PS911", Trial(outcome="error", status=3), "ended with status 3"),
    ("PS911", Trial(outcome="ok", status=0, is_abrupt=True), "`os._exit`"),
    ("PS911", Trial(outcome="crash", status=-11), "SIGSEGV"),
    ("PS911", Trial(outcome="crash", status=-99), "signal 99"),
    (
        "PS912",
        stderr('  File "/home/me/train.py", line 4\n    x = (\nSyntaxError: invalid syntax'),
        "train.py:4",
    ),
    ("PS913", raised("MemoryError"), "memory"),
    ("PS913", Trial(outcome="oom", ended_by="memory"), "memory"),
    ("PS914", Trial(outcome="error", ended_by="processes"), "processes"),
    ("PS915", raised("ModuleNotFoundError", "No module named 'torch'"), "torch"),
    ("PS916", raised("KeyError", "'DATA'", KEY_TRACE), "DATA"),
    ("PS917", raised("URLError", "<urlopen error [Errno -2] Name or service not known>"), "network"),
    ("PS918", raised("ValueError", "environment variable RANK expected, but not set"), "launcher"),
    ("PS918", raised("KeyError", "'LOCAL_RANK'", KEY_TRACE), "launcher"),
]


@pytest.mark.parametrize(("code", "trial", "says"), CASES)
def test_each_reason_is_told_with_its_place_and_a_way_out(code, trial, says):
    reason = could_not_run(trial)
    assert reason.code == code
    assert says in f"{reason.what}\n{reason.why}"
    assert reason.fix
    assert len(reason.why) <= 400


def test_every_code_has_a_page():
    codes = {code for code, *_ in CASES} | {"PS901", "PS919", "PS920", "PS921", "PS922", "PS999"}
    assert codes == set(PAGES)
    assert all(re.fullmatch(r"PS9\d\d", code) and title and text for code, (title, text) in PAGES.items())


def test_a_program_whose_loader_was_used_could_be_run():
    assert could_not_run(Trial(iterators=(IteratorSeen("a"),), status=1)) is None


def test_a_loader_that_fails_before_its_first_batch_is_sick_and_no_reason():
    length = Failure("KeyError", phase="length", is_fatal=True)
    assert could_not_run(Trial(outcome="error", status=1, failures=(length,))) is None
    assert could_not_run(Trial(outcome="crash", deaths=(Death(7, worker=0, loader="a"),))) is None


def test_a_program_that_fails_in_its_own_code_after_its_loaders_is_told_so():
    own = raised("ValueError", "shapes differ")
    reason = failed_elsewhere(own)
    assert (reason.code, "train.py:3" in reason.what) == ("PS919", True)
    assert failed_elsewhere(Trial(status=0)) is None
    left = failed_elsewhere(Trial(outcome="error", status=3, iterators=(IteratorSeen("a"),)))
    assert (left.code, "status 3" in left.what) == ("PS919", True)


def test_an_illness_that_no_rule_knows_is_not_called_health():
    assert failed_elsewhere(Trial(outcome="hang", ended_by="stall")).code == "PS922"
    failure = Failure("ValueError", phase="sample", loader="a", is_fatal=True)
    assert failed_elsewhere(Trial(outcome="error", status=1, failures=(failure,))).code == "PS922"


def test_a_program_that_waits_for_its_own_affairs_is_not_left_without_a_word():
    frames = (Frame("wait", "/usr/lib/python3.11/threading.py", 4), Frame("settle", "/u/train.py", 41))
    look = ProcessLook(5, threads=(ThreadLook(5, frames=frames),))
    waits = Trial(ended_by="time", still_s=60.0, looks=(look,))
    assert "60 s" in stood_still(waits)
    assert "/u/train.py:41 in settle" in stood_still(waits)
    assert stood_still(replace(waits, still_s=2.0)) is None
    assert stood_still(replace(waits, ended_by="enough")) is None
    assert stood_still(replace(waits, outcome="hang")) is None


def test_a_refused_target_keeps_its_own_words():
    error = TargetError(
        "no-such-file", "there is no file `x.py`", why="looked here", fix="did you mean `y.py`?"
    )
    assert refused(error).what == "there is no file `x.py`"
    assert refused(error).code == "PS901"
    assert refused(TargetError("not-python", "no Python")).code == "PS912"
    assert refused(TargetError("not-python", "no Python")).fix


def test_what_could_not_be_started_or_shipped_says_why():
    assert "EAGAIN" in not_run("EAGAIN").why
    assert not_shipped("what", "why").code == "PS921"


def test_without_an_observer_the_exception_is_read_from_stderr():
    text = (
        'Traceback (most recent call last):\n  File "/home/me/a.py", line 2, in <module>\nlib.BadThing: no\n'
    )
    found = raised_by(stderr(text + "lib.OtherError: yes\n"))
    assert (found.type, found.text, found.site) == ("OtherError", "yes", Site("/home/me/a.py", 2))
    assert raised_by(stderr("nothing of interest")) is None
