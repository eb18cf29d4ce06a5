"""The observer in real programs: what it tells, and that the program does not notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock._lab.inside
from penstock._lab.plan import VARIABLE, Change, Plan

PATIENTS = Path(__file__).parent / "patients"
SITE = Path(penstock._lab.inside.__file__).parent / "site"
PATIENT_S = 150.0  # far more than any of them takes


def start(name, *args, **env):
    """The program by itself."""
    return subprocess.run(
        [sys.executable, PATIENTS / name, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=PATIENT_S,
        env={**os.environ, **env},
        check=False,
    )


class Observed:
    """A program with the observer in it, and what that has told."""

    def __init__(self, folder, name, *args, path="", **plan):
        log = folder / "log"
        given = Plan(**plan, log=str(log)).dumps()
        where = os.pathsep.join(filter(None, [str(SITE), path]))
        self.ended = start(name, *args, **{VARIABLE: given, "PYTHONPATH": where})
        self.events = [json.loads(line) for line in log.read_text().splitlines()]

    def of(self, kind):
        return [event for event in self.events if event["kind"] == kind]


# ---- the program does not notice ---------------------------------------------------------------


@pytest.mark.parametrize("how", [(0, ""), (2, "fork"), (2, "spawn")], ids=str)
def test_an_observed_program_gets_the_same_batches_bit_for_bit(how, tmp_path):
    plain, seen = start("seeded.py", *how), Observed(tmp_path, "seeded.py", *how)
    assert plain.returncode == 0
    assert seen.ended.stdout == plain.stdout
    assert seen.ended.stderr == plain.stderr
    assert {event["worker"] for event in seen.of("sample")} == ({0, 1} if how[0] else {-1})
    assert {event["iterator"] for event in seen.of("sample")} == {0, 1}
    assert [event["lost"] for event in seen.of("program")] == [[]]


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 keeps the entry of a frame that re-raises"
)
@pytest.mark.parametrize("how", [("raises", 0), ("raises", 1), ("none", 1), ("init", 1)], ids=str)
def test_an_observed_program_fails_with_the_same_traceback(how, tmp_path):
    plain, seen = start("faulty.py", *how), Observed(tmp_path, "faulty.py", *how)
    assert (plain.returncode, seen.ended.returncode) == (1, 1)
    assert seen.ended.stdout == plain.stdout
    assert seen.ended.stderr == plain.stderr


def test_the_users_own_sitecustomize_still_runs_and_ours_is_gone_from_the_path(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('own')\n")
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint([p for p in sys.path if 'inside' in p], 'torch' in sys.modules)\n")
    seen = Observed(tmp_path, script, path=str(own))
    assert seen.ended.stdout == "own\n[] False\n"
    assert [event["kind"] for event in seen.events] == ["process", "program"]


def test_without_a_plan_nothing_is_loaded(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint('penstock' in sys.modules)\n")
    assert start(script, PYTHONPATH=str(SITE)).stdout == "False\n"


def test_a_log_that_cannot_be_written_does_not_stop_the_program(tmp_path):
    plan = Plan(log=str(tmp_path / "missing" / "log")).dumps()
    ended = start("faulty.py", "stops", 0, **{VARIABLE: plan, "PYTHONPATH": str(SITE)})
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "batch 0\n", "")


# ---- what it tells -----------------------------------------------------------------------------


def test_a_loader_is_told_by_the_line_that_made_it_with_its_settings(tmp_path):
    seen = Observed(tmp_path, "seeded.py", 0, "")
    loader = seen.of("loader")[-1]
    assert loader["key"] == "seeded.py:30#0"
    assert loader["name"] == "train_loader"
    assert loader["settings"]["batch_size"] == 4
    assert "shuffle" in loader["explicit"]
    assert "drop_last" not in loader["explicit"]
    assert loader["dataset"]["length"] == 24
    assert {thing["path"]: thing["kind"] for thing in loader["things"]} == {"dataset.rng": "rng"}
    assert [(event["end"], event["batches"], event["samples"]) for event in seen.of("ended")] == [
        ("exhausted", 6, 24)
    ] * 2
    assert [event["why"] for event in seen.of("enough")] == ["epochs complete"]


@pytest.mark.parametrize(
    ("how", "phase", "index", "field"),
    [
        ("raises", "sample", 5, None),
        ("stops", "sample", 5, None),
        ("none", "collate", 5, ""),
        ("ragged", "collate", 5, "['x']"),
        ("init", "init", None, None),
        ("generator", "feeder", 1, "batch[1]['x']"),
    ],
)
def test_a_failure_in_a_worker_is_told_with_its_sample(how, phase, index, field, tmp_path):
    seen = Observed(tmp_path, "faulty.py", how, 1)
    told = next(event for event in seen.of("failed") if event["phase"] == phase)
    assert (told["worker"], told.get("index"), told.get("field")) == (0, index, field)


def test_a_program_without_a_guard_is_told_by_its_child(tmp_path):
    seen = Observed(tmp_path, "unguarded.py")
    spawned = next(event["pid"] for event in seen.of("process") if event["start_method"] == "spawn")
    told = [event for event in seen.of("failed") if event["pid"] == spawned]
    assert "bootstrapping phase" in told[0]["text"]
    assert told[0]["phase"] == "start"
    assert spawned not in {event["pid"] for event in seen.of("loader")}
    assert seen.of("died")[0]["status"] == 1


# ---- what the plan changes ---------------------------------------------------------------------


def test_a_driven_loader_goes_as_far_as_the_plan_says_with_its_settings(tmp_path):
    change = Change(settings={"num_workers": 0})
    seen = Observed(
        tmp_path, "seeded.py", 2, "spawn",
        drive="loader", loader="seeded.py:30#0", epochs=2, max_batches=3, change=change,
    )  # fmt: skip
    assert (seen.ended.returncode, seen.ended.stdout) == (0, "")
    settings = seen.of("loader")[0]["settings"]
    assert (settings["num_workers"], settings["persistent_workers"], settings["prefetch_factor"]) == (
        0,
        False,
        None,
    )
    assert [(event["end"], event["batches"]) for event in seen.of("ended")] == [("dropped", 3)] * 2
    assert seen.of("worker") == []


def test_a_driven_loader_that_fails_ends_the_program(tmp_path):
    seen = Observed(tmp_path, "faulty.py", "raises", 0, drive="loader")
    assert seen.ended.returncode == 1
    assert [event["phase"] for event in seen.of("failed") if event.get("is_fatal")] == ["program"]


SORTED = "[[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]"
ZEROS = str([[[0.0] * 3] * 4] * 4)
MENDED = [
    ("rngs", "reseed-rng-objects", "4"),
    ("stream", "shard-iterable", SORTED),
    ("views caching odd", "clone-samples no-cache skip-odd", f"8\n8\n8\n8\n{[[1] * 4] * 4}\n{ZEROS}"),
    ("epochs", "fresh-attributes", f"{[[0] * 16]}\n{[[1] * 16]}\n{[[2] * 16]}"),
    ("locked", "no-locks", str([[i, i + 1, i + 2, i + 3] for i in (0, 4, 8, 12)])),
    ("reader", "widen-races reopen-handles", "0"),
    ("rebuilt", "reuse-iterator", str([[i, i + 1, i + 2, i + 3] for i in (0, 4, 8, 12)])),
    ("remade", "reuse-iterator", str([[i, i + 1, i + 2, i + 3] for i in (0, 4, 8, 12)])),
    ("unsent", "unsent-batches", str([[0, 1, 2, 3]] * 4)),
    ("kept threads", "drop-kept one-thread", f"False\n{[[1] * 4] * 4}"),
    ("raise", "skip-raising", str([[0, 1, 2, 3], [4, 4, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]])),
    ("raising-stream", "skip-raising", str([[0, 1, 2, 3], [4]])),
    ("exit", "skip-index:5", str([[0, 1, 2, 3], [4, 4, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]])),
    ("exit", "skip-index:5,4", str([[0, 1, 2, 3], [3, 3, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]])),
    ("packed", "pack-tensors", "True True\nTrue True"),
    ("mutated", "copy-samples", f"{[[2.0] * 16]}\n{[[2.0] * 16]}"),
    ("neighbours", "copy-samples", str([[[2.0]] * 16])),
    ("exit", "no-exits", "exit: RuntimeError"),
    ("local", "plain-exceptions", "local: RuntimeError"),
    ("stop", "stop-iteration-raises", "stop: RuntimeError"),
    ("nested", "inner-workers-zero", str([[[3]] * 4] * 4)),
    ("spawned", "keep-pickled-tensors", str([[i, i + 1, i + 2, i + 3] for i in (0, 4, 8, 12)])),
    ("served", "rebuild-clients", str([list(range(100, 116, 2)), list(range(116, 132, 2))])),
    ("short", "true-length", str([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])),
]


@pytest.mark.parametrize(("cases", "mends", "expected"), MENDED, ids=lambda value: value.partition("\n")[0])
def test_a_mend_takes_the_illness_away(cases, mends, expected, tmp_path):
    seen = Observed(
        tmp_path, "mended.py", *cases.split(), change=Change(mends=tuple(mends.split())), digests=False
    )
    assert seen.ended.stdout.strip() == expected.strip()
    assert {event["name"] for event in seen.of("mend") if event["done"]} == {
        name.partition(":")[0] for name in mends.split()
    }


def test_large_lists_are_packed_before_workers_start(tmp_path):
    seen = Observed(tmp_path, "mended.py", "large", change=Change(mends=("pack-lists",)))
    assert "PackedList PackedDict name 15 15" in seen.ended.stdout


def test_a_mend_that_finds_nothing_to_mend_says_so(tmp_path):
    seen = Observed(tmp_path, "mended.py", "plain", change=Change(mends=("no-locks", "no-such")))
    assert {(event["name"], event["done"]) for event in seen.of("mend")} == {
        ("no-locks", False),
        ("no-such", False),
    }
