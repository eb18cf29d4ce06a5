from __future__ import annotations

import pytest
from click.testing import CliRunner

from penstock._cli.cmd_demo import command
from penstock._cli.demo import stage as stages
from penstock._cli.demo.examples import Judgement, Outcome
from penstock._cli.demo.stage import Scene, Stage

OK = Outcome(samples=1, seconds=1.0)


@pytest.fixture
def played(monkeypatch):
    """Which examples were played; each is well."""
    numbers = []

    def play(self, number, example):
        numbers.append(number)
        return Scene(example, {way.name: OK for way in example.ways}, Judgement("wrong", "x"), None, OK)

    monkeypatch.setattr(stages, "small_shm", tuple)
    monkeypatch.setattr(Stage, "play", play)
    return numbers


def test_all_six_are_played_and_shown_in_order(played):
    result = CliRunner().invoke(command)
    assert result.exit_code == 0
    assert sorted(played) == [1, 2, 3, 4, 5, 6]
    titles = [line[3:] for line in result.stdout.splitlines() if line[:1].isdigit()]
    assert titles == [
        "Shared memory runs out",
        "A lambda in the dataset",
        "OpenCV in workers",
        "Files without a lock",
        "An exception in a worker",
        "Files with a lock",
    ]
    assert result.stdout.count("“How do I resolve") == result.stdout.count("“Why does a DataLoader") == 1


def test_just_one_can_be_asked_for(played):
    assert CliRunner().invoke(command, ["--only", "4"]).exit_code == 0
    assert played == [4]


def test_the_status_is_1_when_our_loader_fails(played, monkeypatch):
    monkeypatch.setattr(
        Stage,
        "play",
        lambda self, number, example: Scene(
            example, ours=Outcome(), runs={way.name: OK for way in example.ways}
        ),
    )
    assert CliRunner().invoke(command, ["--only", "1"]).exit_code == 1


def test_ctrl_c_ends_it_and_says_so(played, monkeypatch):
    def play(self, number, example):
        raise KeyboardInterrupt

    monkeypatch.setattr(Stage, "play", play)
    result = CliRunner().invoke(command)
    assert result.exit_code == 130
    assert "penstock: interrupted: the demo was ended before it was done\n" in result.stderr
