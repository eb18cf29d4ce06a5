"""Patched texts in place of files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock._lab.inside import overlay

SCRIPT = Path(overlay.__file__)


@pytest.fixture
def run(tmp_path):
    """Run a script with these files, some of them patched; what it printed."""

    def of(files, patched, *args):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        table = tmp_path / "overlay.json"
        table.write_text(json.dumps({str(tmp_path / name): text for name, text in patched.items()}))
        env = {"PENSTOCK_OVERLAY": str(table), "PATH": "/usr/bin:/bin"}
        return subprocess.run(
            [sys.executable, str(SCRIPT), "main.py", *args],
            cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return of


def test_script_and_module_run_their_patched_texts(run):
    done = run({"main.py": "import part", "part.py": "print(1)"}, {"part.py": "print(2)"})
    assert (done.stdout, done.returncode) == ("2\n", 0)
    done = run(
        {"main.py": "print(1)"}, {"main.py": "import sys\nprint(2, __name__, __file__, sys.argv)"}, "x"
    )
    assert done.stdout == "2 __main__ main.py ['main.py', 'x']\n"


def test_the_path_begins_with_the_scripts_directory(run, tmp_path):
    done = run({"main.py": ""}, {"main.py": "import sys\nprint(sys.path[0])"})
    assert done.stdout == f"{tmp_path}\n"


def test_no_bytecode_of_a_patched_text_is_written(run, tmp_path):
    run({"main.py": "import part", "part.py": "print(1)"}, {"part.py": "print(2)"})
    assert not list(tmp_path.glob("__pycache__/part*"))


def test_bytecode_of_the_file_is_not_used(run):
    files = {"main.py": "import part", "part.py": "print(1)"}
    assert run(files, {}).stdout == "1\n"  # leaves bytecode behind
    assert run(files, {"part.py": "print(2)"}).stdout == "2\n"
    assert run(files, {}).stdout == "1\n"


def test_tracebacks_show_the_original_path_and_the_patched_line(run):
    files = {"main.py": "x = 1\n"}
    show = (
        "import traceback\ntry:\n    1 / 0  # patched\nexcept ZeroDivisionError:\n    traceback.print_exc()\n"
    )
    done = run(files, {"main.py": show})
    assert 'File "main.py", line 3' in done.stderr
    assert "1 / 0  # patched" in done.stderr


def test_pickle_finds_classes_of_a_patched_script(run):
    text = "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__module__)"
    assert run({"main.py": ""}, {"main.py": text}).stdout == "__main__\n"


def test_an_exit_status_is_kept(run):
    assert run({"main.py": ""}, {"main.py": "raise SystemExit(7)"}).returncode == 7


def test_without_the_variable_nothing_happens(monkeypatch):
    monkeypatch.delenv("PENSTOCK_OVERLAY", raising=False)
    overlay.install()
    assert overlay.text_of(__file__) is None
    assert overlay.text_of(3) is None
