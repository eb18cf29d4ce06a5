"""Workers in a fresh process (spawn, forkserver): what can go there arrives, works, and stays one's own.

Starting a fresh interpreter takes seconds, so one script has all cases, and each test looks at one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .stage import HANG_S, environment, script

CASES = Path(__file__).with_name("clean_cases.py").read_text()
NAMES = re.findall(r"@case\ndef (\w+)\(\):", CASES)


@pytest.fixture(scope="module")
def answers(stage):
    """What every case says: True, or what went wrong."""
    with stage.play(CASES) as consumer:
        consumer.hear("end", 6 * HANG_S)
        lines = consumer.out.splitlines()
        answers = dict(line.split("\t") for line in lines if "\t" in line)
        answers["main, which runs once"] = str(lines.count("main runs") == 1)
        return answers


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", [*NAMES, "main, which runs once"])
def test_a_fresh_process_takes(answers, name):
    assert answers.get(name) == "True"


# ---- programs that are no script of a guarded kind ------------------------------------------------

PROGRAM = script("""
    class Doubles(Numbers):
        def __getitem__(self, index):
            return index * 2
    print("main runs", flush=True)
    for method in ("spawn", "forkserver"):
        loader = DataLoader(Doubles(4), batch_size=2, num_workers=1, multiprocessing_context=method)
        print([batch.tolist() for batch in loader], flush=True)
""")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["a script on standard input", "a command", "a script"])
def test_a_program_without_a_guard_runs_once(tmp_path, how):
    path = tmp_path / "script.py"
    path.write_text(PROGRAM)
    command = {
        "a script on standard input": [sys.executable, "-"],
        "a command": [sys.executable, "-c", PROGRAM],
        "a script": [sys.executable, "-W", "error", str(path)],
    }[how]
    done = subprocess.run(
        command,
        input=PROGRAM if "input" in how else None,
        stdin=None if "input" in how else subprocess.DEVNULL,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=3 * HANG_S,
        check=False,
    )
    assert done.stdout == "main runs\n" + "[[0, 2], [4, 6]]\n" * 2, done.stderr
    assert (done.returncode, done.stderr) == (0, "")
