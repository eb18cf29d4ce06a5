"""`penstock lint`, end to end but in this process."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from penstock._cli.main import main

SICK = """\
from torch.utils.data import DataLoader, Dataset
class Images(Dataset):
    def __init__(self, path):
        self.file = open(path)
    def __getitem__(self, i):
        return self.file.read(i)
"""
CLEAN = "from torch.utils.data import DataLoader\nDataLoader([1, 2], num_workers=2)\n"
MESSAGE = (
    "`Images.file` is a file opened in `__init__` and read in `__getitem__`: forked workers share its "
    "position and get each other's bytes"
)


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A folder with a sick and a healthy file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sick.py").write_text(SICK)
    (tmp_path / "clean.py").write_text(CLEAN)
    return tmp_path


def lint(*arguments, **options):
    return CliRunner().invoke(main, ["lint", *arguments], catch_exceptions=False, **options)


def test_a_finding_is_a_line_and_the_status_is_1():
    result = lint("sick.py")
    assert result.output.splitlines() == [
        f"sick.py:4:9: PS115 handle-shared-across-fork: {MESSAGE}",
        "Found 1 warning in 1 file. `penstock explain PS115` says more.",
    ]
    assert result.exit_code == 1


def test_a_clean_file_is_said_to_be_so():
    result = lint("clean.py")
    assert (result.output, result.exit_code) == ("Nothing found in 1 file.\n", 0)


def test_folders_are_searched_and_what_does_not_concern_us_is_left_out(project):
    (project / "other.py").write_text("print 'python 2'\n")
    result = lint()
    assert result.output.splitlines()[-1].startswith("Found 1 warning in 2 files.")
    assert result.exit_code == 1


def test_standard_input_is_read():
    result = lint("-", input=SICK)
    assert result.output.startswith("<stdin>:4:9: PS115")
    assert result.exit_code == 1
    assert lint("-", input="x = (").exit_code == 2


@pytest.mark.parametrize("content", ["(", None], ids=["no python", "not there"])
def test_a_named_file_that_cannot_be_read_is_status_2(project, content):
    if content is not None:
        (project / "bad.py").write_text(content)
    result = lint("bad.py", "sick.py")
    assert result.exit_code == 2
    assert "bad.py: cannot be read: " in result.stderr
    assert "sick.py:4:9: PS115" in result.stdout


def test_a_broken_file_of_a_folder_is_told_but_does_not_fail(project):
    (project / "sick.py").write_text("import DataLoader\nprint 'python 2'\n")
    result = lint(".")
    assert result.exit_code == 0
    assert "sick.py: cannot be read: line 2" in result.stderr


def test_codes_are_selected_and_ignored():
    assert lint("sick.py", "--select", "PS3").exit_code == 0
    assert lint("sick.py", "--select", "PS115").exit_code == 1
    assert lint("sick.py", "--ignore", "handle-shared-across-fork").exit_code == 0


def test_pyproject_is_honoured(project):
    (project / "pyproject.toml").write_text('[tool.penstock]\nper-file-ignores = {"sick.py" = ["PS115"]}\n')
    assert lint("sick.py").exit_code == 0


def test_a_wrong_code_is_status_2_with_the_nearest():
    result = lint("sick.py", "--select", "rng-repaeted")
    assert result.exit_code == 2
    assert "did you mean rng-repeated?" in result.stderr


def test_remarks_are_shown_when_asked_for_and_never_fail(project):
    text = "from torch.utils.data import DataLoader\nDataLoader([], num_workers=16, prefetch_factor=9)\n"
    (project / "greedy.py").write_text(text)
    assert lint("greedy.py").output == "Nothing found in 1 file.\n"
    result = lint("greedy.py", "--info")
    assert result.output.startswith("greedy.py:2:1: PS215 prefetch-memory: up to 144 batches")
    assert result.exit_code == 0


def test_json_has_the_shape_of_a_report():
    report = json.loads(lint("sick.py", "--format", "json").output)
    assert report["schema"] == "penstock.report/1"
    assert report["verdict"] == "sick"
    (finding,) = report["findings"]
    assert finding["where"] == {"file": "sick.py", "line": 4, "symbol": "Images.__init__", "column": 9}
    assert finding["proof"]["status"] == "not-tested"


def test_sarif_names_the_rule_with_its_page_and_the_place():
    (run,) = json.loads(lint("sick.py", "--format", "sarif").output)["runs"]
    (rule,) = run["tool"]["driver"]["rules"]
    (result,) = run["results"]
    assert rule["id"] == result["ruleId"] == "PS115"
    assert "What to do" in rule["help"]["markdown"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "sick.py"}
    assert place["region"]["startLine"] == 4


def test_github_gets_annotations():
    result = lint("sick.py", "--format", "github")
    assert result.output.startswith("::warning file=sick.py,line=4")
    assert result.exit_code == 1


def test_output_goes_to_a_file_without_colour(project):
    result = lint("sick.py", "--output", "found.txt")
    assert result.output == ""
    assert (project / "found.txt").read_text().startswith("sick.py:4:9: PS115")
    assert lint("sick.py", "--output", "none/found.txt").exit_code == 2


def test_what_is_in_a_file_cannot_act_on_the_terminal(project):
    (project / "a\x1b[2Jb.py").write_text(SICK)
    assert "\x1b[2J" not in lint("a\x1b[2Jb.py").output
