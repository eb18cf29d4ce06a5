"""The pages agree with the code: errors are fresh, links lead somewhere, the public names are all listed."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import penstock
from penstock import errors
from penstock._clinic.causes import CAUSES

ROOT = Path(__file__).resolve().parents[2]
API = ROOT / "docs" / "reference" / "api.md"


@pytest.fixture(scope="module")
def docs():
    """The module scripts/docs.py."""
    spec = importlib.util.spec_from_file_location("penstock_docs_script", ROOT / "scripts" / "docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(title):
    """The first cells of the tables in one section of api.md, without their quotes."""
    text = API.read_text(encoding="utf-8")
    section = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)[1]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def site(folder, text, docs):
    """A documentation of one page, beside fresh generated ones."""
    for place, page in docs.generated().items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(page, encoding="utf-8")
    (folder / "README.md").write_text(text, encoding="utf-8")
    return folder


def test_the_pages_are_fresh_and_their_links_lead_somewhere(docs):
    assert docs.problems(ROOT) == []


def test_the_check_ends_with_0_when_all_is_well(docs, capsys):
    assert docs.main(["--check"]) == 0
    assert capsys.readouterr().err == ""


def test_every_code_has_a_heading(docs):
    text = docs.errors_page()
    assert re.findall(r"^### (PS\d{3})$", text, re.MULTILINE) == list(errors.CODES)


def test_a_stale_page_is_found_and_the_remedy_told(docs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(docs, "ROOT", site(tmp_path, "", docs))
    (tmp_path / docs.ERRORS_PAGE).write_text("# Errors\n", encoding="utf-8")
    assert docs.main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/reference/errors.md is stale: run `make docs`\n"
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0


def test_a_stale_page_of_a_rule_is_found(docs, tmp_path):
    page = site(tmp_path, "", docs) / docs.RULES_FOLDER / "rng-repeated.md"
    page.write_text("# PS302\n", encoding="utf-8")
    assert docs.problems(tmp_path) == ["docs/reference/rules/rng-repeated.md is stale: run `make docs`"]


def test_a_page_that_belongs_to_no_cause_is_found(docs, tmp_path):
    (site(tmp_path, "", docs) / docs.RULES_FOLDER / "gone.md").write_text("# gone\n", encoding="utf-8")
    assert docs.problems(tmp_path) == ["docs/reference/rules/gone.md belongs to no cause: remove it"]


def test_every_cause_has_a_page_with_a_remedy_and_stands_in_the_index(docs):
    pages = docs.generated()
    index = pages[docs.RULES_FOLDER / "index.md"]
    for code, cause in CAUSES.items():
        text = pages[docs.RULES_FOLDER / f"{cause}.md"]
        assert text.startswith(f"# {code} {cause}\n")
        assert "## What to do" in text, cause
        assert f"| {code} | [{cause}]({cause}.md) |" in index


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[a](docs/reference/errors.md)", None),
        ("[a](docs/reference/errors.md#ps601)", None),
        ("# Here it is\n\n[a](#here-it-is)", None),
        ("[a](https://example.org/none)", None),
        ("`[a](none.md)`", None),
        ("```\n[a](none.md)\n```", None),
        ("[a](none.md)", "none.md does not exist"),
        (
            "[a](docs/reference/errors.md#ps000)",
            "docs/reference/errors.md#ps000: errors.md has no heading #ps000",
        ),
        ("[a](#nowhere)", "#nowhere: README.md has no heading #nowhere"),
    ],
)
def test_a_link_is_followed(docs, tmp_path, text, problem):
    site(tmp_path, text, docs)
    assert docs.problems(tmp_path) == ([] if problem is None else [f"README.md: {problem}"])


@pytest.mark.parametrize("module", [penstock, errors], ids=lambda module: module.__name__)
def test_the_reference_lists_exactly_the_public_names(module):
    assert sorted(rows(module.__name__)) == sorted(module.__all__)


def test_the_reference_lists_every_setting_in_order_with_its_default():
    parameters = list(inspect.signature(penstock.DataLoader.__init__).parameters.values())[1:]
    assert rows("Settings") == [parameter.name for parameter in parameters]
    text = API.read_text(encoding="utf-8")
    for parameter in parameters[1:]:
        default = repr(parameter.default).replace("'", '"')
        assert f"| `{parameter.name}` | `{default}` |" in text


def test_the_readme_lists_the_options_of_its_own():
    from torch.utils.data import DataLoader

    names = inspect.signature(penstock.DataLoader.__init__).parameters
    own = [
        name for name in names if name not in {*inspect.signature(DataLoader.__init__).parameters, "in_order"}
    ]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \|", readme, re.MULTILINE)
    assert re.findall(r"`([a-z_]+)`", " ".join(table)) == own


def test_the_readme_fits_on_two_screens():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 80
