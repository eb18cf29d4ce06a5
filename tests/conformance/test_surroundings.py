"""What the code in a worker may rely on: queues, output, its thread, the modes of its loader."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from .datasets import Ints

SAMPLES = 6


@pytest.fixture(scope="module", autouse=True)
def _heap_of_multiprocessing():
    """Python keeps the memory of its first shared value: let that not count as left behind."""
    return multiprocessing.Value("i", 0)


class Reports(Ints):
    """Tells the main process about each sample through `tell`."""

    def __init__(self, tell):
        super().__init__(SAMPLES)
        self.tell = tell

    def __getitem__(self, index):
        self.tell(index)
        return index


def test_what_a_worker_puts_into_a_queue_is_not_lost(loader_class):
    queue = multiprocessing.Queue()
    list(loader_class(Reports(queue.put), num_workers=2))
    assert sorted(queue.get(timeout=10) for _ in range(SAMPLES)) == list(range(SAMPLES))
    queue.close()
    queue.join_thread()


def test_a_worker_may_count_in_a_shared_value(loader_class):
    total = multiprocessing.Value("i", 0)

    def add(index):
        with total.get_lock():
            total.value += index

    list(loader_class(Reports(add), num_workers=2))
    assert total.value == sum(range(SAMPLES))


def test_a_worker_may_hold_a_lock_of_the_program(loader_class):
    lock = multiprocessing.Lock()

    def locked(index):
        with lock:
            pass

    assert len(list(loader_class(Reports(locked), num_workers=2))) == SAMPLES


def test_a_worker_may_write_to_a_file_opened_by_the_program(loader_class, tmp_path):
    with (tmp_path / "log").open("ab", buffering=0) as log:
        list(loader_class(Reports(lambda index: log.write(b"%d\n" % index)), num_workers=2))
    lines = (tmp_path / "log").read_text().split()
    assert sorted(lines) == [str(index) for index in range(SAMPLES)]


PRINTING = """
import sys
if {penstock}:
    from penstock import DataLoader
else:
    from torch.utils.data import DataLoader

class Prints:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        print("sample", index)
        return index

print("before")
list(DataLoader(Prints(), num_workers=1))
print("after")
"""


def test_what_a_worker_prints_is_printed_once(loader_class):
    script = PRINTING.format(penstock=loader_class.__module__.startswith("penstock"))
    done = subprocess.run(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    lines = done.stdout.splitlines()
    assert lines.count("before") == lines.count("after") == 1
    for index in range(3):
        assert lines.count(f"sample {index}") == 1


class Tells(Ints):
    """Each sample is what `ask` returns in the worker."""

    def __init__(self, ask):
        super().__init__(1)
        self.ask = ask

    def __getitem__(self, index):
        return self.ask()


def told(loader_class, ask):
    """What a worker answers."""
    (answer,) = loader_class(Tells(ask), batch_size=None, num_workers=1)
    return answer


def test_the_code_runs_in_the_main_thread_of_its_worker(loader_class):
    def in_main_thread():
        return threading.current_thread() is threading.main_thread()

    assert told(loader_class, in_main_thread)


def test_the_code_may_set_signal_handlers(loader_class):
    def set_alarm():
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        return True

    assert told(loader_class, set_alarm)


def test_a_worker_does_not_take_itself_for_the_main_process(loader_class):
    def names():
        return multiprocessing.current_process().name, multiprocessing.parent_process() is not None

    name, has_parent = told(loader_class, names)
    assert name != "MainProcess"
    assert has_parent


def test_the_pid_that_multiprocessing_tells_is_that_of_the_worker(loader_class):
    assert told(loader_class, lambda: multiprocessing.current_process().pid == os.getpid())


def test_a_worker_is_called_as_torchs_workers_are(loader_class):
    assert told(loader_class, lambda: Path("/proc/self/comm").read_text().strip()) == "pt_data_worker"


def test_a_worker_may_run_a_command(loader_class):
    def echo():
        return subprocess.run(["echo", "hello"], stdout=subprocess.PIPE, check=True).stdout

    assert told(loader_class, echo) == b"hello\n"


def test_a_worker_may_start_a_thread(loader_class):
    def in_thread():
        found = []
        thread = threading.Thread(target=lambda: found.append(7))
        thread.start()
        thread.join()
        return found

    assert told(loader_class, in_thread) == [7]


def test_a_worker_has_no_input(loader_class):
    assert told(loader_class, lambda: sys.stdin is None or sys.stdin.read()) == ""


@pytest.mark.parametrize("enabled", [True, False])
def test_a_forked_worker_has_the_grad_mode_of_its_loader(loader_class, enabled):
    with torch.set_grad_enabled(enabled):
        assert told(loader_class, torch.is_grad_enabled) is enabled


def test_a_forked_worker_has_the_settings_of_torch(loader_class):
    torch.use_deterministic_algorithms(mode=True)
    try:
        assert told(loader_class, torch.are_deterministic_algorithms_enabled)
    finally:
        torch.use_deterministic_algorithms(mode=False)


def test_a_forked_worker_may_import_what_the_program_put_into_sys_modules(loader_class, monkeypatch):
    import types

    module = types.ModuleType("made_by_the_program")
    module.value = 42
    monkeypatch.setitem(sys.modules, "made_by_the_program", module)

    def imported():
        import made_by_the_program

        return made_by_the_program.value

    assert told(loader_class, imported) == 42


def test_torch_operations_work_in_a_worker_after_the_main_process_used_its_threads(loader_class):
    torch.mm(torch.ones(300, 300), torch.ones(300, 300))
    assert told(loader_class, lambda: torch.mm(torch.ones(300, 300), torch.ones(300, 300))[0, 0]) == 300
