"""A scene of the demo on the terminal, and the closing table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock._cli.demo.examples import Outcome
from penstock._cli.demo.stage import SHM_MB, Scene
from penstock._render import words

WIDEST = 100
LABEL = 12
JUDGED = {"holds": "green", "half true": "yellow", "wrong": "red", "not tested": "dim"}


def show(number: int, scene: Scene, console: Console, *, is_first: bool = False) -> None:
    """One example: claim, what torch did, the judgement, the doctor's word, our loader."""
    if is_first:
        console.print(Text(f"“{scene.example.question}”\n", "bold"))
    title = Text().append(f"{number}  ", "bold cyan").append(scene.example.title, "bold")
    console.print(title)
    for label, text in _lines(scene):
        _labelled(label, text, console)
    console.print()


def _labelled(label: str, text: Text, console: Console) -> None:
    width = min(console.width, WIDEST) - LABEL - 3
    for place, line in enumerate(text.wrap(console, width)):
        line.rstrip()
        lead = Text("   ").append((label if place == 0 else "").ljust(LABEL), "dim")
        console.print(lead.append_text(line), soft_wrap=True)


def _lines(scene: Scene) -> Iterator[tuple[str, Text]]:
    yield "claim", Text(f"“{scene.example.claim}”", "italic")
    if scene.missing:
        yield "", Text(f"needs {scene.missing}, not installed", "dim")
        return
    label = "torch"
    for way in scene.example.ways:
        place = f" (/dev/shm of {SHM_MB} MB)" if way.in_small_shm else ""
        yield label, Text(f"{way.name}{place}: ").append_text(happened(scene.runs[way.name]))
        label = ""
    if scene.judgement is not None:
        word, why = scene.judgement.word, scene.judgement.why
        yield "the claim", Text().append(word, f"bold {JUDGED[word]}").append(f": {why}")
    yield "doctor", doctor(scene.report)
    yield "penstock", ours(scene)


def happened(run: Outcome) -> Text:
    """What one run did."""
    if run.is_ok:
        rate = f", {words.number(run.rate)} per second" if run.rate else ""
        return Text().append("ok", "green").append(f", all {run.samples} samples{rate}")
    return (
        Text()
        .append("hung" if run.is_hung else "failed", "red")
        .append(f": {words.plain(run.error, limit=160)}")
    )


def doctor(report: dict[str, Any] | None) -> Text:
    """The doctor's answer in one line."""
    if report is None:
        return Text("no answer in time", "red")
    if report["verdict"] == "could-not-run":
        return Text().append("could not run", "yellow").append(f": {words.plain(report['reason']['what'])}")
    found = [each for each in report["findings"] if each["severity"] != "info"]
    if report["verdict"] == "healthy" or not found:
        remarks = [f"{each['code']} {words.plain(each['cause'])}" for each in report["findings"]]
        said = f"nothing more than a remark: {', '.join(remarks)}" if remarks else "nothing wrong found"
        return Text().append("healthy", "green").append(f": {said}")
    first = found[0]
    proved = "proved" if first["proof"]["status"] == "verified" else first["confidence"]
    named = Text().append(f"{first['code']} {words.plain(first['cause'])}", "bold").append(f" ({proved}): ")
    return named.append(words.plain(first["message"], limit=160))


def ours(scene: Scene) -> Text:
    """What our loader did."""
    run = scene.ours
    if run is None:
        return Text("not run", "dim")
    if is_well(scene) and not run.is_ok:
        return (
            Text()
            .append("one clear error", "green")
            .append(f", with the sample: {words.plain(run.error, limit=160)}")
        )
    return happened(run)


def is_well(scene: Scene) -> bool:
    """Whether our loader did all that a loader can do for this program."""
    if scene.missing:
        return True
    run = scene.ours
    return run is not None and (run.is_ok or (scene.example.is_data_at_fault and run.names_sample))


def closing(scenes: Sequence[Scene]) -> Table:
    """All examples in one table."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("example", "claim", "torch", "doctor", "penstock"):
        table.add_column(name, no_wrap=True)
    for scene in scenes:
        table.add_row(*_row(scene))
    return table


def _row(scene: Scene) -> tuple[Text, ...]:
    title = Text(scene.example.title)
    if scene.missing:
        return (title, Text(f"needs {scene.missing}", "dim"), Text("–"), Text("–"), Text("–"))
    failed = any(not run.is_ok for run in scene.runs.values())
    well, judged = is_well(scene), scene.judgement.word if scene.judgement else "–"
    return (
        title,
        Text(judged, JUDGED.get(judged, "")),
        Text("fails" if failed else "ok", "red" if failed else "green"),
        Text(_cause(scene.report)),
        Text("ok" if well else "fails", "green" if well else "red"),
    )


def _cause(report: dict[str, Any] | None) -> str:
    if report is None:
        return "no answer"
    found = [each for each in report["findings"] if each["severity"] != "info"]
    return words.plain(found[0]["cause"] if found else report["verdict"])
