from __future__ import annotations

import dataclasses
import json
import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock._cli.cmd_doctor import command
from penstock._clinic.finding import Proof
from penstock._render import as_text
from tests.unit._render import reports


class Exam:
    """Stands for the doctor: gives reports one after another, and remembers what it was asked."""

    def __init__(self, *reports, says=()) -> None:
        self.reports, self.says, self.asked = list(reports), says, []

    def __call__(self, target, arguments, options, say):
        self.asked.append((target, tuple(arguments), options))
        for sentence in self.says:
            say(sentence)
        given = self.reports.pop(0)
        if isinstance(given, BaseException):
            raise given
        return given


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    (tmp_path / "train.py").write_text(reports.TRAIN)
    return tmp_path


def run(exam, *arguments):
    return CliRunner().invoke(command, list(arguments), obj=exam)


@pytest.mark.parametrize(
    ("report", "status"), [(reports.HEALTHY, 0), (reports.SHM, 1), (reports.COULD_NOT_RUN, 2)]
)
def test_the_exit_status_is_the_verdict(report, status):
    result = run(Exam(report), "train.py")
    assert result.exit_code == status
    assert result.stdout.splitlines()[-1] or status == 2


def test_text_goes_to_standard_output_and_progress_to_standard_error():
    result = run(Exam(reports.SHM, says=["observed run"]), "train.py")
    expected = (Path(reports.__file__).parent / "expected" / "shm.txt").read_text(encoding="utf-8")
    assert result.stdout == expected
    assert result.stderr.endswith("  observed run\n")


def test_quiet_says_nothing_while_it_works():
    result = run(Exam(reports.SHM, says=["observed run"]), "train.py", "--quiet")
    assert result.stderr == ""
    assert "shm-exhausted" in result.stdout


@pytest.mark.parametrize("name", ["json", "html", "sarif", "github"])
def test_another_format_has_standard_output_for_itself(name):
    result = run(Exam(reports.SHM), "train.py", "--format", name)
    assert "── error PS201" not in result.stdout
    assert "PS201" in result.stdout
    assert "── error PS201" in result.stderr
    if name in {"json", "sarif"}:
        json.loads(result.stdout)
    assert run(Exam(reports.SHM), "train.py", "--format", name, "--quiet").stderr == ""


@pytest.mark.parametrize("name", ["text", "json", "html", "sarif", "github"])
def test_a_file_gets_the_report_and_the_terminal_the_text(folder, name):
    result = run(Exam(reports.SHM), "train.py", "--format", name, "--output", "report")
    assert "── error PS201" in result.stdout
    assert "PS201" in (folder / "report").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["report", "train.py"]


def test_an_existing_report_is_replaced_and_keeps_its_mode(folder):
    (folder / "report.json").write_text("old")
    (folder / "report.json").chmod(0o640)
    run(Exam(reports.SHM), "train.py", "--format", "json", "--output", "report.json")
    assert json.loads((folder / "report.json").read_text())["verdict"] == "sick"
    assert (folder / "report.json").stat().st_mode & 0o777 == 0o640


def test_a_device_can_be_written():
    assert run(Exam(reports.SHM), "train.py", "--format", "json", "--output", "/dev/null").exit_code == 1


@pytest.mark.parametrize("place", [".", "none/report.json", "train.py/report.json", "/proc/report.json"])
def test_an_output_that_cannot_be_written_is_refused_before_the_exam(place):
    exam = Exam(reports.SHM)
    result = run(exam, "train.py", "--output", place)
    assert result.exit_code == 2
    assert "Invalid value for --output: cannot write it: " in result.stderr
    assert exam.asked == []


def test_an_output_that_fails_at_the_end_is_told(folder):
    def examine(target, arguments, options, say):
        (folder / "sub").rmdir()
        return reports.SHM

    (folder / "sub").mkdir()
    result = run(examine, "train.py", "--format", "json", "--output", "sub/report.json")
    assert result.exit_code == 2
    assert "the report could not be written to sub/report.json" in result.stderr
    assert "shm-exhausted" in result.stdout


def test_options_reach_the_doctor():
    exam = Exam(reports.HEALTHY)
    codes = "--select PS2,rng-repeated --select PS301 --ignore PS4"
    words = f"--timeout 60 --quick {codes} --no-experiments --workers 3 -- --epochs 3 -x"
    run(exam, "train.py", *words.split())
    ((target, arguments, options),) = exam.asked
    assert (target, arguments) == ("train.py", ("--epochs", "3", "-x"))
    assert (options.timeout, options.quick, options.experiments, options.workers) == (60.0, True, False, 3)
    assert options.select == ("PS2", "rng-repeated", "PS301")
    assert options.ignore == ("PS4",)


def test_options_come_from_pyproject_where_the_command_line_is_silent(folder):
    (folder / "pyproject.toml").write_text('[tool.penstock]\ntimeout = 50\nquick = true\nformat = "json"\n')
    exam = Exam(reports.HEALTHY)
    result = run(exam, "train.py", "--timeout", "70", "--thorough")
    assert json.loads(result.stdout)["verdict"] == "healthy"
    assert (exam.asked[0][2].timeout, exam.asked[0][2].quick) == (70.0, False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing argument 'TARGET'"),
        (["train.py", "--select", "PS999"], "select names 'PS999', and no code or cause is called so"),
        (["train.py", "--select", "shm-exhaustd"], "did you mean shm-exhausted?"),
        (["train.py", "--timeout", "0"], "timeout is out of range"),
        (["train.py", "--timeout", "nan"], "timeout is out of range"),
        (["train.py", "--timeout", "soon"], "'soon' is not a valid float"),
        (["train.py", "--workers", "-1"], "workers is out of range"),
        (["train.py", "--format", "xml"], "'xml' is not one of"),
        (["train.py", "--epochs", "3"], "put it after two dashes: penstock doctor SCRIPT -- --epochs"),
    ],
)
def test_wrong_use_ends_with_2_and_says_what_is_wrong(arguments, words):
    exam = Exam(reports.HEALTHY)
    result = run(exam, *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert exam.asked == []


def test_ctrl_c_ends_cleanly_and_says_so():
    result = run(Exam(KeyboardInterrupt(), says=["observed run"]), "train.py")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "penstock: interrupted: the exam was ended before it was done"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_request_to_end_reaches_the_exam_as_an_exception(number, status):
    cleared = []

    def examine(target, arguments, options, say):
        try:
            os.kill(os.getpid(), number)
        finally:
            cleared.append("up")

    before = signal.getsignal(number)
    result = run(examine, "train.py")
    assert result.exit_code == status
    assert cleared == ["up"]
    assert signal.getsignal(number) is before


def test_a_bug_of_the_doctors_own_is_not_sickness():
    result = run(Exam(ZeroDivisionError("division")), "train.py", "--format", "json")
    assert result.exit_code == 2
    report = json.loads(result.stdout)
    assert (report["verdict"], report["reason"]["why"]) == ("could-not-run", "ZeroDivisionError: division")
    assert "Traceback" in result.stderr


@pytest.mark.parametrize("arguments", [["--no-color"], []])
def test_without_a_terminal_there_is_no_colour(arguments):
    assert "\x1b" not in run(Exam(reports.SHM), "train.py", *arguments).stdout


def test_colour_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    result = run(Exam(reports.SHM, says=["observed run"]), "train.py", "--color")
    assert "\x1b[1;31merror PS201" in result.stdout
    assert "\x1b" not in result.stderr


def test_a_report_that_the_terminal_cannot_show_is_delivered_all_the_same(folder, monkeypatch):
    def show(report, console):
        raise UnicodeError("odd terminal")

    monkeypatch.setattr(as_text, "show", show)
    result = run(Exam(reports.SHM), "train.py", "--format", "json", "--output", "report.json")
    assert result.exit_code == 1
    assert json.loads((folder / "report.json").read_text())["verdict"] == "sick"


# ---- --fix ---------------------------------------------------------------------------------------


def test_fix_writes_the_patch_and_examines_again(folder):
    exam = Exam(reports.PICKLING, reports.HEALTHY)
    result = run(exam, "train.py", "--fix", "--format", "json", "--output", "report.json")
    assert result.exit_code == 0
    assert "self.transform = scaled" in (folder / "train.py").read_text()
    assert (folder / "train.py.orig").read_text() == reports.TRAIN
    assert f"changed {folder / 'train.py'}; the old text is in train.py.orig" in result.stderr
    assert json.loads((folder / "report.json").read_text())["verdict"] == "healthy"
    assert len(exam.asked) == 2


def test_without_fix_nothing_is_written(folder):
    run(Exam(reports.PICKLING), "train.py")
    assert (folder / "train.py").read_text() == reports.TRAIN


def test_fix_without_a_patch_says_so_and_keeps_the_verdict():
    exam = Exam(reports.SHM)
    result = run(exam, "train.py", "--fix")
    assert result.exit_code == 1
    assert "nothing was changed: no finding has a patch that can be applied" in result.stderr
    assert len(exam.asked) == 1


def test_a_patch_that_no_longer_fits_is_refused(folder):
    (folder / "train.py").write_text("changed = 1\n")
    result = run(Exam(reports.PICKLING), "train.py", "--fix")
    assert result.exit_code == 1
    assert (
        "a patch was not applied: the lines to change near line 3 are not there as they were" in result.stderr
    )
    assert (folder / "train.py").read_text() == "changed = 1\n"


@pytest.mark.parametrize("change", [{"proof": Proof("refuted", "x")}, {"severity": "info"}])
def test_a_patch_of_a_refuted_finding_or_of_a_remark_is_not_written(folder, change):
    finding = dataclasses.replace(reports.PICKLING.findings[0], **change)
    run(Exam(dataclasses.replace(reports.PICKLING, findings=(finding,))), "train.py", "--fix")
    assert (folder / "train.py").read_text() == reports.TRAIN


def test_a_patch_after_which_the_program_does_not_run_is_taken_back(folder):
    result = run(Exam(reports.PICKLING, reports.COULD_NOT_RUN), "train.py", "--fix")
    assert result.exit_code == 1
    assert (folder / "train.py").read_text() == reports.TRAIN
    assert "every file was put back as it was" in result.stderr


def test_ctrl_c_while_examining_again_keeps_the_patch(folder):
    result = run(Exam(reports.PICKLING, KeyboardInterrupt()), "train.py", "--fix")
    assert result.exit_code == 130
    assert (folder / "train.py.orig").exists()


def test_help_imports_no_torch():
    import subprocess
    import sys

    code = """
import sys
from penstock._cli.main import main
try:
    main(["doctor", "--help"])
finally:
    assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage:" in done.stdout
