from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from penstock._cli.demo import stage as stages
from penstock._cli.demo.examples import Example, Judgement, Outcome, Way
from penstock._cli.demo.stage import FILES, Stage, outcome


@pytest.fixture
def stage(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "small_shm", tuple)
    with Stage(tmp_path) as made:
        yield made


def script(stage: Stage, text: str) -> Path:
    file = stage.folder / "x.py"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("out", "err", "status", "expected"),
    [
        ("RESULT 60 1.5\n", "", 0, Outcome(samples=60, seconds=1.5)),
        ("THREADS 2\nRESULT 60 1.5\n", "", 0, Outcome(samples=60, seconds=1.5, threads=2)),
        ("RESULT 60 1.5\n", "died\n", -11, Outcome(seconds=1.5, error="died")),
        ("", "Traceback\n  x\nKeyError: 'a'\nmore\n", 1, Outcome(error="KeyError: 'a'")),
        ("", "torch.AcceleratorError: x\n", 1, Outcome(error="torch.AcceleratorError: x")),
        ("", "", -9, Outcome(error="ended with status -9")),
        ("", "", None, Outcome(error="no end after 60 s", is_hung=True)),
        ("", "sample index: 9\nTypeError: x\n", 1, Outcome(error="TypeError: x", names_sample=True)),
        ("", "", 0, Outcome()),
    ],
)
def test_what_a_run_did_is_read_from_what_it_printed(out, err, status, expected):
    assert outcome(out, err, status) == expected


def test_a_program_gets_its_argument_and_its_folder(stage):
    file = script(stage, "import os, sys; print('RESULT', len(os.listdir('files')), len(sys.argv[1]))")
    assert stage.run([sys.executable], file, Way("x", "four")) == Outcome(samples=FILES, seconds=4.0)


def test_a_program_that_hangs_is_ended_with_its_children(stage, monkeypatch):
    monkeypatch.setattr(stages, "LIMIT_S", 1.0)
    monkeypatch.setattr(stages, "ASKED_S", 0.2)
    file = script(
        stage,
        """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("child", "w").write(str(child.pid))
child.wait()
""",
    )
    run = stage.run([sys.executable], file, Way("x"))
    assert run.is_hung
    child = int((stage.folder / "child").read_text())
    end = time.monotonic() + 10
    while is_running(child) and time.monotonic() < end:  # SIGKILL is sent; the kernel takes its moment
        time.sleep(0.01)
    assert not is_running(child)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_closing_the_stage_ends_what_runs_and_starts_nothing_more(stage):
    file = script(stage, "open('ready', 'w').close(); import time; time.sleep(600)")
    seen = []
    thread = threading.Thread(target=lambda: seen.append(stage.run([sys.executable], file, Way("x"))))
    thread.start()
    while not (stage.folder / "ready").exists():
        time.sleep(0.01)
    stage.close()
    thread.join()
    assert not seen[0].is_ok
    assert stage.run([sys.executable], file, Way("x")).is_hung


def example(**fields) -> Example:
    values = {
        "title": "x",
        "question": "why?",
        "program": "print('RESULT 1 1')",
        "claim": "c",
        "ways": (Way("a", "a"), Way("b", "b")),
        "judge": lambda runs: Judgement("holds", ", ".join(runs)),
    }
    return Example(**{**values, **fields})


@pytest.fixture
def runs(stage, monkeypatch):
    """Which way was examined and which program started; nothing really runs."""
    seen = []

    def run(self, program, script, way):
        seen.append((" ".join(program[1:]), way.name))
        return Outcome(samples=1) if way.name != "b" or "run" in program else Outcome(error="E")

    monkeypatch.setattr(Stage, "run", run)
    monkeypatch.setattr(Stage, "examine", lambda self, script, way: seen.append(("doctor", way.name)))
    return seen


def test_the_way_that_failed_goes_to_the_doctor_and_to_our_loader(stage, runs):
    scene = stage.play(2, example())
    assert runs == [("", "a"), ("", "b"), ("doctor", "b"), ("-m penstock run", "b")]
    assert scene.judgement == Judgement("holds", "a, b")
    assert scene.ours.is_ok
    assert scene.way == "b"


def test_a_slip_of_the_pen_does_not_go_to_the_doctor(stage, runs):
    stage.play(1, example(ways=(Way("b", "printed"), Way("a"))))
    assert runs[2:] == [("doctor", "a"), ("-m penstock run", "a")]


def test_an_example_that_needs_what_is_not_installed_is_not_run(stage, runs):
    scene = stage.play(1, example(needs=("no_such_module_here", "OpenCV")))
    assert (scene.missing, scene.runs, runs) == ("OpenCV", {}, [])


@pytest.mark.parametrize(
    ("printed", "report"), [('{"verdict": "sick"}', {"verdict": "sick"}), ("Traceback", None)]
)
def test_the_doctor_is_asked_for_a_quick_report(stage, monkeypatch, printed, report):
    commands = []
    monkeypatch.setattr(
        Stage, "_bounded", lambda self, command, limit_s: (commands.append(command), (printed, "", 0))[1]
    )
    assert stage.examine(stage.folder / "x.py", Way("b", "b")) == report
    (command,) = commands
    assert command[1:9] == ["-m", "penstock", "doctor", "--quick", "--quiet", "--format", "json", "--timeout"]
    assert command[10:] == ["x.py", "--", "b"]


def test_a_small_shared_memory_is_had_or_not():
    prefix = stages.small_shm()
    assert prefix == () or prefix[0] == "unshare"
