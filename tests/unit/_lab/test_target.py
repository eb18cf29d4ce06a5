"""What may be examined, and how it is started."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock._lab.target import TargetError, find, user_files


@pytest.fixture
def project(tmp_path):
    """A small project."""
    (tmp_path / "train.py").write_text("import data\nfrom pack import models\nimport os, numpy\n")
    (tmp_path / "data.py").write_text("from pack.deep import thing\ndef make():\n    return None\n")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "__main__.py").write_text("from . import models\n")
    (tmp_path / "pack" / "models.py").write_text("from .deep import other\nfrom data import make\n")
    (tmp_path / "pack" / "deep.py").write_text("thing = other = 1\nclass Loaders:\n    train = None\n")
    return tmp_path


def refused(text, folder):
    with pytest.raises(TargetError) as caught:
        find(text, cwd=str(folder))
    return caught.value


def test_a_script_is_run_as_it_was_named(project):
    target = find("train.py", ("--epochs", "3"), cwd=str(project))
    assert target.command("unused") == (sys.executable, "-u", "train.py", "--epochs", "3")
    assert target.program is None
    assert target.root == str(project)


def test_a_script_needs_no_suffix(project):
    (project / "go").write_text("print(1)\n")
    assert find("go", cwd=str(project)).script == "go"


def test_a_module_is_run_with_m(project):
    target = find("pack.models", cwd=str(project))
    assert target.command("unused") == (sys.executable, "-u", "-m", "pack.models")
    assert target.file == str(project / "pack" / "models.py")


def test_a_package_is_run_by_its_main(project):
    assert find("pack", cwd=str(project)).file == str(project / "pack" / "__main__.py")


@pytest.mark.parametrize(
    ("text", "module", "function"),
    [
        ("data.py:make", "data", "make"),
        ("data:make", "data", "make"),
        ("pack.deep:Loaders.train", "pack.deep", "Loaders.train"),
    ],
)
def test_a_callable_gets_a_program_of_its_own(project, text, module, function):
    target = find(text, cwd=str(project))
    assert target.command("/tmp/run.py") == (sys.executable, "-u", "/tmp/run.py")
    assert (target.module, target.function, target.root) == (module, function, str(project))
    assert target.program is not None
    compile(target.program, "run.py", "exec")


def test_files_of_the_user_are_followed_through_imports(project):
    names = [file.rpartition(str(project) + "/")[2] for file in find("train.py", cwd=str(project)).files]
    assert names == ["train.py", "data.py", "pack/__init__.py", "pack/models.py", "pack/deep.py"]


def test_files_that_cannot_be_read_are_no_obstacle(tmp_path):
    (tmp_path / "a.py").write_text("import b\n")
    (tmp_path / "b.py").write_text("def (:\n")
    assert len(user_files(str(tmp_path / "a.py"), (str(tmp_path),))) == 2


def test_a_missing_file_is_refused_with_a_near_name(project):
    error = refused("trian.py", project)
    assert (error.kind, error.what) == ("no-such-file", "there is no file `trian.py`")
    assert error.fix == "did you mean `train.py`?"


def test_a_directory_is_refused(project):
    (project / "runs").mkdir()
    assert refused("runs", project).kind == "directory"


def test_a_missing_module_is_refused(project):
    assert refused("pack.nothing", project).kind == "no-such-module"
    assert refused("nothing.at.all:make", project).kind == "no-such-module"


def test_a_missing_callable_is_refused_with_those_that_exist(project):
    error = refused("data.py:mkae", project)
    assert (error.kind, error.what) == ("no-such-callable", "`data.py` defines no `mkae`")
    assert error.why == "its functions are `make`"


def test_a_missing_file_of_a_callable_is_refused(project):
    assert refused("dta.py:make", project).kind == "no-such-file"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("weights.bin", b"\x00\x01\x02"),
        ("notes.md", b"# To do\n- train"),
        ("config.json", b"{}"),
        ("run.sh", b"#!/bin/sh\necho $1 | cat\n"),
    ],
)
def test_what_is_not_python_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert refused(name, tmp_path).kind == "not-python"


def test_a_syntax_error_names_its_line(tmp_path):
    (tmp_path / "train.py").write_text("x = 1\ndef f(:\n")
    error = refused("train.py", tmp_path)
    assert error.kind == "not-python"
    assert error.what.endswith("at line 2")


def test_a_notebook_is_refused_with_the_way_out(tmp_path):
    (tmp_path / "train.ipynb").write_text("{}")
    assert "penstock.diagnose" in refused("train.ipynb", tmp_path).fix


def test_the_program_iterates_each_loader_twice(project, tmp_path_factory):
    (project / "torch").mkdir()  # a stand-in: the program asks it for one class
    (project / "torch" / "__init__.py").write_text("")
    (project / "torch" / "utils").mkdir()
    (project / "torch" / "utils" / "__init__.py").write_text("")
    (project / "torch" / "utils" / "data.py").write_text(
        "class DataLoader:\n"
        "    def __init__(self, name): self.name = name\n"
        "    def __iter__(self): print(self.name); return iter([1])\n"
    )
    (project / "many.py").write_text(
        "from torch.utils.data import DataLoader as L\n"
        "def make(): return {'a': L('train'), 'b': [L('val'), 3], 'n': 7}\n"
    )
    runner = tmp_path_factory.mktemp("run") / "run.py"
    runner.write_text(find("many.py:make", cwd=str(project)).program)
    told = subprocess.run([sys.executable, runner], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["train", "val", "train", "val"]
