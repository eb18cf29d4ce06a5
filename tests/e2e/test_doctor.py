"""`penstock doctor` as a user calls it: a real program, a real exam, a real Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import torch
from torch.utils.data import DataLoader, Dataset

class Divides(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        return 1 / (index - 9)

if __name__ == "__main__":
    for batch in DataLoader(Divides(), batch_size=4, num_workers=2):
        pass
"""
HANGS = """
import time
import torch
time.sleep(600)
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock", "doctor", *arguments]


@pytest.mark.timeout(170)
def test_an_exam_from_the_command_line_to_the_report(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    done = subprocess.run(
        command("train.py", "--quick", "--timeout", "120", "--format", "json", "--output", "report.json"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["schema"], report["verdict"]) == ("penstock.report/1", "sick")
    finding = report["findings"][0]
    assert (finding["cause"], finding["where"]["line"]) == ("dataset-raises", 9)
    assert "error PS801 dataset-raises" in done.stdout
    assert "    9 │         return 1 / (index - 9)" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("sick: dataset-raises (PS801)")
    assert "observed run" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "train.py"]


def _hear():
    """What this run itself was told to ignore (nohup, a job in the background) is not ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_exam_and_its_patient(tmp_path, number, status):
    (tmp_path / "train.py").write_text(f"open('pid', 'w').write(str(__import__('os').getpid()))\n{HANGS}")
    with subprocess.Popen(
        command("train.py"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear,  # noqa: PLW1509 - no other thread runs here
    ) as doctor:
        while not (pid := tmp_path / "pid").exists() or not pid.read_text():
            time.sleep(0.02)
        os.kill(doctor.pid, number)
        _, err = doctor.communicate(timeout=40)
    assert doctor.returncode == status
    assert ("interrupted: the exam was ended before it was done" in err) == (number == signal.SIGINT)
    patient = Path("/proc") / pid.read_text()
    assert not patient.exists()
