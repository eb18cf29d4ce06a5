from __future__ import annotations

import io

import pytest
from rich.console import Console

from penstock._cli.demo import showing
from penstock._cli.demo.examples import EXAMPLES, Judgement, Outcome
from penstock._cli.demo.stage import Scene

SICK = {
    "verdict": "sick",
    "reason": None,
    "findings": [
        {
            "severity": "info",
            "code": "PS407",
            "cause": "x",
            "message": "x",
            "proof": {},
            "confidence": "observed",
        },
        {
            "severity": "error",
            "code": "PS201",
            "cause": "shm-exhausted",
            "message": "the batches in flight need 320 MB",
            "proof": {"status": "verified"},
            "confidence": "observed",
        },
    ],
}
HEALTHY = {"verdict": "healthy", "reason": None, "findings": []}
REMARKED = {"verdict": "healthy", "reason": None, "findings": SICK["findings"][:1]}
REFUSED = {"verdict": "could-not-run", "reason": {"what": "it was still busy"}, "findings": []}


def scene(number=0, report=SICK, ours=None, **fields):
    failed = Outcome(error="RuntimeError: [bold]\x1b[31m")
    values = {
        "runs": {way.name: failed for way in EXAMPLES[number].ways},
        "judgement": Judgement("wrong", "it fails too"),
        "report": report,
        "ours": ours or Outcome(samples=60, seconds=0.5),
    }
    return Scene(EXAMPLES[number], **{**values, **fields})


def printed(*what) -> str:
    out = io.StringIO()
    console = Console(file=out, width=80)
    for each in what:
        each(console)
    return out.getvalue()


def test_a_whole_scene():
    text = printed(lambda console: showing.show(1, scene(), console, is_first=True))
    assert text == (
        "“How do I resolve runtime errors related to num_workers?”\n"
        "\n"
        "1  Shared memory runs out\n"
        "   claim       “a large array in the dataset exhausts shared memory; load\n"
        "               lazily”\n"
        "   torch       as printed (/dev/shm of 64 MB): failed: RuntimeError:\n"
        "               [bold]\\x1b[31m\n"
        "               loading lazily (/dev/shm of 64 MB): failed: RuntimeError:\n"
        "               [bold]\\x1b[31m\n"
        "   the claim   wrong: it fails too\n"
        "   doctor      PS201 shm-exhausted (proved): the batches in flight need 320 MB\n"
        "   penstock    ok, all 60 samples, 120 per second\n"
        "\n"
    )


def test_what_is_not_installed_is_said_and_nothing_else():
    text = printed(lambda console: showing.show(3, Scene(EXAMPLES[2], missing="OpenCV"), console))
    assert text.splitlines()[-2:] == ["               needs OpenCV, not installed", ""]


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (SICK, "PS201 shm-exhausted (proved): the batches in flight need 320 MB"),
        (HEALTHY, "healthy: nothing wrong found"),
        (REMARKED, "healthy: nothing more than a remark: PS407 x"),
        (REFUSED, "could not run: it was still busy"),
        (None, "no answer in time"),
    ],
)
def test_the_doctor_has_one_line(report, text):
    assert showing.doctor(report).plain == text


def test_a_clear_error_is_well_where_the_data_is_at_fault():
    told = scene(4, ours=Outcome(error="TypeError: x", names_sample=True))
    assert showing.is_well(told)
    assert showing.ours(told).plain == "one clear error, with the sample: TypeError: x"
    assert not showing.is_well(scene(4, ours=Outcome(error="TypeError: x")))
    assert not showing.is_well(scene(0, ours=Outcome(error="TypeError: x", names_sample=True)))


def test_the_closing_table():
    scenes = [
        scene(),
        Scene(EXAMPLES[2], missing="OpenCV"),
        scene(4, HEALTHY, Outcome(error="x")),
        scene(5, None),
    ]
    text = printed(lambda console: console.print(showing.closing(scenes)))
    assert [line.rstrip() for line in text.splitlines()] == [
        "example                   claim         torch  doctor         penstock",
        "Shared memory runs out    wrong         fails  shm-exhausted  ok",
        "OpenCV in workers         needs OpenCV  –      –              –",
        "An exception in a worker  wrong         fails  healthy        fails",
        "Files with a lock         wrong         fails  no answer      ok",
    ]
