from __future__ import annotations

import pytest

from penstock._clinic.finding import Proof
from penstock._clinic.report import LoaderLine, Report
from penstock._render import words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("as it is: äöü → 日本", "as it is: äöü → 日本"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\tb\nc\r\nd\n", "a    b c d"),
        ("\r\x00\x07\x9b", "\\r\\x00\\x07\\x9b"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\u2028\ud800\U000e0041", "\\u2028\\ud800\\U000e0041"),
        (17, "17"),
    ],
)
def test_nothing_in_a_text_can_act_on_a_terminal(text, shown):
    assert words.plain(text) == shown
    words.plain(text).encode("utf-8")


def test_a_long_text_is_cut():
    assert words.plain("abcdef", limit=4) == "abc…"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (1204.4, "1,204"),
        (122.4, "122"),
        (23.14, "23.1"),
        (3, "3"),
        (0.0421, "0.0421"),
        (-1.5, "-1.5"),
    ],
)
def test_a_number_has_the_digits_that_matter(value, shown):
    assert words.number(value) == shown


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_unknown(value):
    assert words.number(value) == "unknown"


@pytest.mark.parametrize(
    ("nbytes", "shown"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (64_000_000, "64 MB"),
        (1_500_000_000, "1.5 GB"),
        (3e15, "3,000 TB"),
    ],
)
def test_a_size_has_a_unit(nbytes, shown):
    assert words.size(nbytes) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.4213, "0.42 s"), (8.31, "8.3 s"), (31.2, "31 s"), (125, "2 min 5 s")]
)
def test_a_duration_has_a_unit(value, shown):
    assert words.seconds(value) == shown


def test_figures_carry_the_unit_of_their_name_and_the_outcome_comes_first():
    values = {
        "batches": 3,
        "samples_per_s": 1204.2,
        "wait_s": 0.25,
        "growth_bytes": 2_000_000,
        "memory": 64_000_000,
        "is_right": True,
        "ill": False,
        "gain": 3.77,
        "bytes shipped per sample": 4e8,
        "text": "a\x1bb",
        "unknown": None,
        "outcome": "hang",
    }
    assert words.figures(values) == (
        "hang, batches 3, 1,204 samples/s, wait 0.25 s, growth 2 MB, memory 64 MB, "
        "is right, without the fault, 3.77 times as fast, 400 MB shipped per sample, text a\\x1bb"
    )


@pytest.mark.parametrize(
    ("proof", "sentence"),
    [
        (Proof(), "no experiment could be made for it"),
        (Proof("not-tested", "the time was used up"), "the time was used up"),
        (Proof("refuted", "spawn: it stays"), "spawn: it stays"),
        (
            Proof("verified", "num_workers=0: OSError is gone", {"outcome": "OSError"}, {"outcome": "ok"}),
            "with num_workers=0 the failure is gone",
        ),
        (
            Proof(
                "verified",
                "the same loader under spawn: hang is gone",
                {"outcome": "hang"},
                {"outcome": "ok"},
            ),
            "the same loader under spawn: the failure is gone",
        ),
        (
            Proof("verified", "4 workers: 3.80x", {"samples_per_s": 50}, {"samples_per_s": 190}),
            "4 workers: 3.80x",
        ),
        (
            Proof(
                "verified",
                "one batch ahead: bytes in shared memory 4e8 becomes 2e8",
                {"bytes in shared memory": 4e8},
            ),
            "one batch ahead",
        ),
        (Proof("verified", "", {"repeated": 30}, {"repeated": 0}), "it is cured"),
    ],
)
def test_a_proof_is_one_sentence(proof, sentence):
    assert words.proof(proof) == sentence


def test_a_loader_is_called_as_its_user_calls_it():
    report = Report("train.py", "healthy", 1.0, loaders=(LoaderLine("valid", "/home/me/train.py", 12),))
    assert words.loader("train.py:12#0", report) == "valid (train.py:12)"
    assert words.loader("train.py:12#1", report) == "train.py:12#1"
    assert words.loader("", report) == "loader"


def test_a_sick_report_without_a_finding_is_still_a_sentence():
    assert words.verdict(Report("train.py", "sick", 2.0)) == "sick; examined in 2 s"
    assert words.verdict(Report("train.py", "could-not-run", 2.0)) == "could not run: no reason was given"


def test_a_path_below_the_working_directory_is_short(tmp_path):
    assert words.short_path(str(tmp_path / "a" / "train.py"), base=tmp_path) == "a/train.py"
    assert words.short_path("/elsewhere/train.py", base=tmp_path) == "/elsewhere/train.py"
    assert words.short_path("train.py") == "train.py"


@pytest.mark.parametrize(
    ("target", "way"),
    [
        ("train.py", "penstock run train.py"),
        ("scripts/train", "penstock run scripts/train"),
        ("package.train", "penstock run -m package.train"),
        ("package.train:make", "from penstock import DataLoader"),
    ],
)
def test_the_other_way_out_fits_the_target(target, way):
    assert words.other_way(target) == way
