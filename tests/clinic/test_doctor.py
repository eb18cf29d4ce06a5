"""The doctor on whole programs, in real processes."""

from __future__ import annotations

import textwrap

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from penstock import doctor

PRELUDE = """
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
"""


@pytest.fixture
def examined(tmp_path, monkeypatch):
    """Write a program, examine it from its own folder."""
    monkeypatch.chdir(tmp_path)

    def examine(text, *arguments, **options):
        (tmp_path / "train.py").write_text(PRELUDE + textwrap.dedent(text))
        return doctor.examine("train.py", arguments, **options)

    return examine


def test_a_healthy_program_gets_no_alarm_and_two_rungs(examined):
    report = examined(
        """
        def main():
            loader = DataLoader(TensorDataset(torch.randn(256, 8)), batch_size=16, num_workers=2)
            model = torch.nn.Linear(8, 1)
            for epoch in range(3):
                for (x,) in loader:
                    model(x).mean().backward()

        if __name__ == "__main__":
            main()
        """
    )
    assert (report.verdict, report.exit_status) == ("healthy", 0)
    assert [finding for finding in report.findings if finding.severity != "info"] == []
    assert [(rung.num_workers, rung.outcome) for rung in report.ladder][:2] == [(0, "ok"), (2, "ok")]
    assert report.loaders[0].line == 6


def test_a_dataset_that_raises_is_sick_with_its_sample_and_a_proof(examined):
    report = examined(
        """
        class Rows(Dataset):
            def __len__(self):
                return 100

            def __getitem__(self, index):
                return torch.tensor(1 / (index - 57))

        if __name__ == "__main__":
            for batch in DataLoader(Rows(), batch_size=4, num_workers=2):
                pass
        """
    )
    first = report.findings[0]
    assert (report.verdict, report.exit_status) == ("sick", 1)
    assert (first.cause, first.severity, first.proof.status) == ("dataset-raises", "error", "verified")
    assert "57" in first.message
    assert (first.where.file.endswith("train.py"), first.where.line) == (True, 10)


def test_a_program_without_a_loader_could_not_be_examined(examined):
    report = examined("print('nothing to train')")
    assert (report.verdict, report.exit_status, report.reason.code) == ("could-not-run", 2, "PS902")


def test_arguments_go_to_the_program(examined):
    report = examined("import sys; raise SystemExit(int(sys.argv[1]))", "7")
    assert "status 7" in report.reason.what


def test_a_target_that_is_not_there_is_told_without_a_trial(examined):
    said = []
    report = doctor.examine("nowhere.py", progress=said.append)
    assert (report.reason.code, said) == ("PS901", [])


def test_a_loader_at_hand_is_examined_in_processes_of_its_own():
    report = doctor.diagnose(DataLoader(TensorDataset(torch.arange(64)), batch_size=8))
    assert (report.verdict, report.target) == ("healthy", "the loader over TensorDataset")
