"""Real programs that misbehave, each under a trial: the outcome is told, and nothing is left."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import pytest

from penstock._lab import tree, watch
from penstock._lab.limits import Limits
from penstock._lab.plan import Change, Plan
from penstock._lab.target import find
from penstock._lab.trial import run

PATIENTS = Path(__file__).parent / "patients"
PATIENT_S = 85.0  # far more than any of them takes: the limit decides nothing, but where a test says so


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A directory of our own for trials, with a short name; it must be empty again afterwards.

    (`tmp_path` first: it is made in the directory that everybody uses.)
    """
    home = Path(tempfile.mkdtemp(prefix="lab-", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    yield home
    left = [path.name for path in home.iterdir()]
    shutil.rmtree(home)
    assert left == []


def examine(name, *args, limits=None, **plan):
    plan.setdefault("max_s", PATIENT_S)
    return run(find(str(PATIENTS / name), args), Plan(**plan), limits=limits)


def role(trial, name):
    return next(look for look in trial.looks if look.role == name)


# ---- endings -----------------------------------------------------------------------------------


def test_a_program_that_ends_is_told_with_its_output():
    trial = examine("odd.py", "wanders")
    assert (trial.outcome, trial.ended_by, trial.status, trial.stdout) == ("ok", "itself", 0, "still here\n")


def test_an_end_without_pythons_own_is_abrupt(told):
    ends = "import os; os._exit(0)", "raise SystemExit(0)", "raise ValueError", "pass"
    assert [told(end).is_abrupt for end in ends] == [True, False, False, False]


def test_a_program_that_fails_keeps_its_traceback():
    trial = examine("odd.py", "fails")
    assert (trial.outcome, trial.status) == ("error", 1)
    assert trial.stderr.endswith("ValueError: nothing works\n")
    assert trial.failures[0].phase == "program"


def test_a_program_that_asks_gets_no_answer():
    trial = examine("odd.py", "asks")
    assert trial.outcome == "error"
    assert "EOFError" in trial.stderr


def test_a_program_that_leaves_without_a_word_is_told():
    trial = examine("odd.py", "leaves")
    assert (trial.outcome, trial.status, trial.stdout) == ("ok", 0, "bye\n")


@pytest.mark.parametrize(("late_s", "used"), [(60.0, 2), (0.0, 1)])
def test_a_loader_that_is_used_late_is_waited_for_if_the_plan_says_so(late_s, used):
    trial = examine("later.py", loader_s=0.5, late_s=late_s)
    assert (trial.outcome, trial.ended_by) == ("ok", "enough")
    assert len({each.loader for each in trial.iterators}) == used


@pytest.mark.parametrize("how", ["threading.Timer(3, os._exit, (7,)).start()", "signal.alarm(3)"])
def test_a_timer_that_the_program_has_set_is_waited_for(told, how):
    trial = told(
        "import os, signal, threading, time, torch\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "signal.signal(signal.SIGALRM, lambda *_: os._exit(7))\n"
        f"{how}\n"
        "for _batch in DataLoader(TensorDataset(torch.arange(1000.0))):\n"
        "    time.sleep(0.05)",
        loader_s=0.5,
        late_s=60.0,
    )
    assert (trial.ended_by, trial.status) == ("itself", 7)


@pytest.mark.parametrize(("how", "outcome"), [("more", ("error", "itself")), ("many", ("ok", "enough"))])
def test_a_limit_of_descriptors_that_is_near_is_waited_for(how, outcome):
    trial = examine("filling.py", how, loader_s=1.5, late_s=60.0, change=Change(nofile=90))
    assert (trial.outcome, trial.ended_by) == outcome


@pytest.mark.parametrize("how", ["ignores", "loops"])
def test_a_program_that_does_not_end_is_ended_and_shows_where_it_was(how):
    trial = examine("odd.py", how, max_s=3.0)
    assert (trial.outcome, trial.ended_by, trial.status) == ("ok", "time", None)
    assert role(trial, "main").main.frames[0].function == how


def test_a_program_that_prints_for_ever_is_ended():
    trial = examine("odd.py", "prints", limits=Limits(memory=8 << 30, output=32 << 20))
    assert (trial.outcome, trial.ended_by) == ("error", "output")
    assert len(trial.stdout) < 1 << 18


def test_a_program_that_multiplies_is_ended():
    trial = examine("odd.py", "multiplies")
    assert (trial.outcome, trial.ended_by) == ("error", "processes")


def test_a_trial_can_be_stopped():
    stop = threading.Event()
    stop.set()
    trial = run(find(str(PATIENTS / "odd.py"), ("loops",)), Plan(), stop=stop)
    assert (trial.ended_by, trial.left_processes) == ("stop", 0)


def test_a_program_that_eats_memory_is_ended():
    trial = examine("odd.py", "eats", limits=Limits(memory=300 << 20))
    assert (trial.outcome, trial.ended_by) == ("oom", "memory")


def test_a_daemon_does_not_escape():
    trial = examine("odd.py", "daemonises")
    assert (trial.outcome, trial.left_processes) == ("ok", 1)


def test_a_program_that_kills_its_warden_does_not_escape_either():
    trial = examine("odd.py", "kills_its_parent")
    assert (trial.outcome, trial.status) == ("crash", -signal.SIGKILL)


def test_what_a_program_leaves_in_shared_memory_is_told_and_removed():
    trial = examine("odd.py", "litters")
    (name,) = trial.left_shm
    assert name.startswith("torch_")
    assert not Path("/dev/shm", name).exists()


def test_a_named_segment_that_was_closed_at_once_is_told_and_removed_too():
    (name,) = examine("odd.py", "leaves_a_segment").left_shm
    assert name.startswith("psm_")
    assert not Path("/dev/shm", name).exists()


def test_shared_memory_of_a_program_that_was_ended_is_tidied_up():
    trial = examine("shares.py", epochs=1, loader_s=0.5)
    assert (trial.outcome, trial.ended_by, trial.left_shm) == ("ok", "enough", ())
    names = trial.stderr.split()
    assert names
    assert all(name.startswith("psm_") for name in names)
    assert not [name for name in names if Path("/dev/shm", name).exists()]


@pytest.mark.parametrize(("late_s", "ended_by", "left"), [(60.0, "itself", 1), (0.0, "enough", 0)])
def test_the_end_of_a_program_with_named_shared_memory_is_waited_for(late_s, ended_by, left):
    trial = examine("leaves.py", loader_s=0.5, late_s=late_s)
    assert (trial.outcome, trial.ended_by, len(trial.left_shm)) == ("ok", ended_by, left)


def test_a_python_that_cannot_be_started_is_told(tmp_path):
    import dataclasses

    target = dataclasses.replace(find(str(PATIENTS / "odd.py")), python=str(tmp_path / "nothing"))
    trial = run(target, Plan())
    assert trial.outcome == "error"
    assert "FileNotFoundError" in trial.stderr


# ---- loaders -----------------------------------------------------------------------------------


def test_a_healthy_program_is_ended_when_it_has_shown_enough():
    trial = examine("slow.py", "not", "0", "2", epochs=1)
    assert trial.outcome == "ok"
    assert trial.ended_by in {"enough", "itself"}
    assert [seen.batches for seen in trial.iterators] == [2]
    assert trial.host.torch
    assert max(vitals.processes for vitals in trial.vitals) >= 1


@pytest.mark.parametrize(
    ("how", "status"), [("kill", -9), ("exit", 3), ("exit0", 0), ("segv", -signal.SIGSEGV)]
)
def test_a_worker_that_dies_is_told_with_its_sample(how, status):
    trial = examine("dies.py", how)
    assert trial.outcome == "crash"
    (death,) = trial.deaths
    assert (death.worker, death.status, death.index) == (1, status, 13)


def test_a_lock_held_at_fork_is_a_hang_with_stacks():
    trial = examine("lock_held_at_fork.py")
    assert (trial.outcome, trial.ended_by, trial.judgement) == ("hang", "stall", "lock")
    look = role(trial, "worker")
    assert look.main.frames[0].function.endswith("__getitem__")
    assert look.index == 0
    assert not look.cpu_moved
    assert trial.iterators[0].waiting_since_s is not None


def test_a_batch_that_cannot_be_sent_is_a_hang():
    trial = examine("lost_batch.py")
    assert (trial.outcome, trial.judgement) == ("hang", "lost-batch")


def test_workers_that_live_on_after_their_process_are_counted(monkeypatch):
    monkeypatch.setattr(watch, "OUTLIVED_S", 0.5)
    trial = examine("outlived.py")
    assert (trial.outcome, trial.outlived_workers) == ("ok", 2)


def test_a_server_that_never_answers_is_a_hang():
    trial = examine("silent_server.py")
    assert (trial.outcome, trial.judgement) == ("hang", "io")
    assert next(look for look in trial.looks if look.index == 13).worker == 1


@pytest.mark.parametrize("how", ["pool", "event"])
@pytest.mark.parametrize("workers", [0, 2])
def test_waiting_for_threads_that_are_not_there_is_a_hang(how, workers):
    if (how, workers) == ("pool", 0):
        pytest.skip("the pool works where it was made")
    trial = examine("stuck.py", how, str(workers))
    assert (trial.outcome, trial.judgement) == ("hang", "lock")


@pytest.mark.parametrize("how", ["sleep", "join", "pool", "child", "compute", "step"])
def test_a_slow_sample_is_no_hang(how):
    trial = examine("slow.py", how, "8", "2", epochs=2)
    assert (trial.outcome, trial.ended_by, trial.stdout) == ("ok", "itself", "through\n")


def test_ranks_that_differ_are_a_hang():
    trial = examine("ranks.py", "barrier")
    assert (trial.outcome, trial.judgement) == ("hang", "ranks")
    assert sum(look.role == "rank" for look in trial.looks) == 2


# ---- changes -----------------------------------------------------------------------------------


@pytest.fixture
def told(tmp_path):
    """Run some lines of Python under a change; what they printed."""

    def of(lines, loader_s=None, late_s=0.0, **change):
        path = tmp_path / "line.py"
        path.write_text(lines)
        plan = Plan(max_s=PATIENT_S, loader_s=loader_s, late_s=late_s, change=Change(**change))
        return run(find(str(path)), plan)

    return of


LATE_LOADER = """
import time
from torch.utils.data import DataLoader

class Slow(list):
    def __getitem__(self, index):
        time.sleep(0.01)
        return index

train = DataLoader(Slow(range(100)))
val = DataLoader(list(range(6)))
for _ in train:
    pass
for _ in val:
    pass
"""


def test_a_loader_that_comes_after_a_long_epoch_is_driven_all_the_same(tmp_path):
    path = tmp_path / "late.py"
    path.write_text(LATE_LOADER)
    trial = run(find(str(path)), Plan(drive="loader", loader="late.py:11#0", loader_s=0.1, max_s=PATIENT_S))
    assert [seen.batches for seen in trial.of("late.py:11#0")] == [6]


def test_short_passes_bring_the_program_to_what_lies_behind_them(tmp_path):
    path = tmp_path / "late.py"
    path.write_text(LATE_LOADER)

    trial = run(find(str(path)), Plan(short=2, epochs=5, max_s=PATIENT_S))
    assert [(seen.loader, seen.batches) for seen in trial.iterators][-1] == ("late.py:11#0", 2)
    assert max(seen.batches for seen in trial.iterators) == 2

    driven = run(find(str(path)), Plan(drive="loader", loader="late.py:11#0", short=2, max_s=PATIENT_S))
    assert [seen.batches for seen in driven.of("late.py:11#0")] == [6]  # our own loop goes through all of it


def test_a_loader_can_be_driven_before_its_turn_if_it_was_made_beforehand(tmp_path):
    path = tmp_path / "late.py"
    path.write_text(LATE_LOADER + "for _ in DataLoader(list(range(3))):\n    pass\n")

    def ahead(key):
        return run(find(str(path)), Plan(drive="loader", loader=key, is_early=True, max_s=PATIENT_S))

    trial = ahead("late.py:11#0")

    assert [(seen.loader, seen.batches) for seen in trial.iterators] == [("late.py:11#0", 6)]
    assert {seen.key for seen in trial.loaders if seen.is_beforehand} == {"late.py:10#0", "late.py:11#0"}
    assert not ahead("late.py:16#0").iterators


def test_a_private_shm_has_the_size_that_was_asked_for(told):
    trial = told("import os; s = os.statvfs('/dev/shm'); print(s.f_blocks * s.f_frsize)", shm_bytes=64 << 20)
    assert trial.impossible or trial.stdout == f"{64 << 20}\n"


def test_descriptors_are_limited(told):
    assert told("import resource; print(resource.getrlimit(7)[0])", nofile=99).stdout == "99\n"


def test_no_core_file_is_written(told):
    assert told("import resource; print(resource.getrlimit(resource.RLIMIT_CORE)[0])").stdout == "0\n"


def test_the_environment_can_be_changed(told):
    assert told("import os; print(os.environ['LEVEL'])", env={"LEVEL": "3"}).stdout == "3\n"


def test_temporary_files_go_where_they_can_be_removed(told, temporary):
    assert told("import tempfile; print(tempfile.mkdtemp())").stdout.startswith(str(temporary))


def test_temporary_files_that_a_program_makes_elsewhere_are_removed_too(told, temporary):
    trial = told(
        f"import os, tempfile; tempfile.tempdir = {str(temporary)!r}; print(tempfile.mkdtemp())\n"
        "print(tempfile.NamedTemporaryFile(delete=False).name, flush=True)\n"
        "os._exit(0)"
    )
    assert [Path(line).parent for line in trial.stdout.split()] == [temporary, temporary]
    assert list(temporary.iterdir()) == []


def test_a_temporary_directory_with_data_in_it_is_kept(told, temporary, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(temporary))
    assert told("import tempfile; print(tempfile.gettempdir())").stdout != f"{temporary}\n"
    (temporary / "images").mkdir()
    assert told("import tempfile; print(tempfile.gettempdir())").stdout == f"{temporary}\n"
    (temporary / "images").rmdir()


def test_a_long_temporary_directory_is_kept_for_its_length(told, temporary, monkeypatch):
    long = temporary / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.setenv("TMPDIR", str(long))
    trial = told("import tempfile; print(tempfile.gettempdir())")
    assert (trial.stdout, trial.host.tmpdir_length) == (f"{long}\n", len(str(long)))
    long.rmdir()


def test_a_patched_text_runs_in_place_of_a_file(tmp_path):
    main, part = tmp_path / "main.py", tmp_path / "part.py"
    main.write_text(
        textwrap.dedent("""
        import multiprocessing, sys
        import part
        WORD = "plain"
        def show(): print(__name__, WORD, part.WORD, __file__, sys.argv[1:], flush=True)
        if __name__ == "__main__":
            show()
            child = multiprocessing.get_context("spawn").Process(target=show)
            child.start()
            child.join()
        """)
    )
    part.write_text("WORD = 'plain'\n")
    patched = {str(path): path.read_text().replace("plain", "patched") for path in (main, part)}
    trial = run(find(str(main), ("x",)), Plan(change=Change(patched=patched)))
    assert trial.stdout.splitlines() == [
        f"__main__ patched patched {main} ['x']",
        f"__mp_main__ patched patched {main} ['x']",
    ]
    assert "plain" in main.read_text()
    assert trial.plan.change.patched == patched


# ---- the one who examines ----------------------------------------------------------------------


def test_two_trials_at_once_do_not_meddle():
    trials = {}

    def one(how):
        trials[how] = examine("odd.py", how, max_s=3.0)

    threads = [threading.Thread(target=one, args=(how,)) for how in ("daemonises", "loops", "litters")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {how: trial.ended_by for how, trial in trials.items()} == {
        "daemonises": "itself", "loops": "time", "litters": "itself",
    }  # fmt: skip
    assert trials["loops"].left_shm == ()


_DOCTOR = """
import sys, tempfile
tempfile.tempdir = sys.argv[2]
from penstock._lab.plan import Plan
from penstock._lab.target import find
from penstock._lab.trial import run
run(find(sys.argv[1], ("ignores",)), Plan(max_s=60), on_progress=lambda _: print("going", flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_when_the_doctor_is_ended_so_is_the_patient(number, temporary):
    doctor = subprocess.Popen(
        [sys.executable, "-c", _DOCTOR, str(PATIENTS / "odd.py"), str(temporary)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    with doctor:
        doctor.stdout.readline()
        below = tree.below(doctor.pid)
        assert len(below) == 2  # warden and patient
        doctor.send_signal(number)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and (_same(below) or any(temporary.iterdir())):
        time.sleep(0.05)
    assert not _same(below)


def _same(processes):
    now = {process.pid: process.started for process in tree.everybody()}
    return [process for process in processes if now.get(process.pid) == process.started]


def test_progress_is_told():
    words = []
    run(find(str(PATIENTS / "odd.py"), ("ignores",)), Plan(max_s=2.5), on_progress=words.append)
    assert "starting" in words
