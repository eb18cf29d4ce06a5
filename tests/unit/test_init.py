"""The public face, and that looking at it costs nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

PROJECT = Path(penstock.__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize(
    "module",
    [
        "penstock",
        "penstock.errors",
        "penstock._base.settings",
        "penstock._base.host",
        "penstock._engine.ledger",
        "penstock._engine.policy",
    ],
)
def test_importing_does_not_import_torch(module):
    check = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", check], check=False, env={"PYTHONPATH": ":".join(sys.path)}
        ).returncode
        == 0
    )


def test_what_is_visible_is_what_is_public():
    assert dir(penstock) == sorted(penstock.__all__)


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_public_name_can_be_had(name):
    assert getattr(penstock, name) is not None


def test_a_star_import_gives_the_public_names():
    names: dict = {}
    exec("from penstock import *", names)
    assert set(names) - {"__builtins__"} == set(penstock.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'penstock' has no attribute 'Dataloader'$"):
        penstock.Dataloader  # noqa: B018


def test_the_loader_says_that_it_comes_from_penstock():
    assert penstock.DataLoader.__module__ == "penstock"


@pytest.mark.skipif(not PROJECT.exists(), reason="not in a checkout")
def test_the_version_is_the_projects():
    assert re.search(r'^version = "(.*)"$', PROJECT.read_text(), re.MULTILINE)[1] == penstock.__version__


def test_every_unit_test_file_has_its_module():
    here, source = Path(__file__).parent, Path(penstock.__file__).parent
    missing = []
    for test in here.rglob("test_*.py"):
        name = test.name.removeprefix("test_")
        folder = source / test.parent.relative_to(here)
        if not any((folder / each).exists() for each in (name, f"_{name}", f"__{name[:-3]}__.py", name[:-3])):
            missing.append(str(test.relative_to(here)))
    assert missing == []
