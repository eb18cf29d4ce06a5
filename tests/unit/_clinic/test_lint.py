"""Which findings of the source are shown."""

from __future__ import annotations

from penstock._clinic import lint, source
from penstock._clinic.settings import Options

TEXT = """\
import random
from torch.utils.data import DataLoader, Dataset
class Images(Dataset):
    def __init__(self, path):
        self.file = open(path){comment}
        self.rng = random.Random(0)
    def __getitem__(self, i):
        return self.file.read(i), self.rng.random()
"""


def codes(comment="", path="train.py", **options):
    linted = lint.lint(source.read_text(TEXT.format(comment=comment), path), Options(**options))
    assert linted.notes == ()
    return [finding.code for finding in linted.findings]


def test_findings_come_in_the_order_of_lines():
    assert codes() == ["PS115", "PS302"]


def test_a_comment_silences_its_line():
    assert codes("  # penstock: ignore[PS115]") == ["PS302"]
    assert codes("  # penstock: ignore[handle-shared-across-fork]") == ["PS302"]
    assert codes("  # penstock: ignore") == ["PS302"]
    assert codes("  # penstock: ignore[PS302]") == ["PS115", "PS302"]


def test_codes_can_be_selected_and_ignored():
    assert codes(select=("PS3",)) == ["PS302"]
    assert codes(ignore=("rng-repeated",)) == ["PS115"]
    assert codes(per_file_ignores={"train.py": ("PS115",)}) == ["PS302"]
    assert codes(per_file_ignores={"other.py": ("PS115",)}) == ["PS115", "PS302"]


class Failing:
    code = "PS101"
    cause = "unpicklable-dataset"
    needs = frozenset({"source"})

    def check(self, facts):
        raise KeyError("x")


def test_a_rule_that_fails_is_named_and_stops_no_other():
    rules = (Failing(), *lint.RULES)
    linted = lint.lint(source.read_text(TEXT.format(comment="")), Options(), rules=rules)
    assert linted.notes == ("rule PS101 failed: KeyError: 'x'",)
    assert len(linted.findings) == 2


def test_the_same_finding_through_two_loaders_is_told_once():
    text = TEXT.format(comment="") + "DataLoader(Images('x'), num_workers=2)\n" * 2
    assert len(lint.lint(source.read_text(text), Options()).findings) == 2
