"""A report for the terminal, in the manner of rustc and elm.

Worst first. Each finding: what it is and where, one sentence, the user's own line, the evidence with numbers,
the remedy, and what the experiment said. Then the ladder, what was ruled out, and the verdict as last line.

Guarantees: no line is wider than the console (at most WIDEST); without colour the text is complete by
itself; nothing that the patient wrote can act on the terminal (`words.plain`), or be read as rich's markup
(only `Text` is used).
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from penstock._clinic.finding import Finding
from penstock._clinic.report import Report, Rung
from penstock._render import stacks, words
from penstock._render.excerpt import Read, excerpt, read_lines, shortened

WIDEST = 100  # columns; longer lines are hard to read
NARROWEST = 40  # columns; below that lines break where they must
LABEL = 14  # columns before the text of a labelled line
LONGEST_DETAIL = 120  # characters of what a rung of the ladder says
LEAST_DETAIL = 20  # columns beside a rung for that; with less, it goes below
BAR = 20  # columns of the longest bar of the ladder

STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
OUTCOMES = {"ok": "green", "error": "red", "hang": "magenta", "crash": "red", "oom": "red"}
PROOF_STYLES = {"verified": "bold green", "refuted": "yellow", "not-tested": "dim"}
VERDICTS = {"healthy": "bold green", "sick": "bold red", "could-not-run": "bold yellow"}
MOST_PATCH_LINES = 40  # of a diff on the screen; the whole is in the JSON, and --fix applies it
# What a terminal without Unicode shows instead.
ASCII = str.maketrans({"─": "-", "│": "|", "█": "#", "→": ">", "…": ".", "–": "-", "×": "x", "·": "-"})


def as_text(report: Report, *, width: int = 80, read: Read = read_lines) -> str:
    """The report as plain text."""
    out = io.StringIO()
    show(report, Console(file=out, width=width, color_system=None, force_terminal=False), read=read)
    return out.getvalue()


def show(report: Report, console: Console, *, read: Read = read_lines) -> None:
    """Print the report."""
    page = Page(console)
    for line in _report(report, page, read):
        line.rstrip()
        console.print(page.drawn(line), soft_wrap=True, highlight=False, markup=False, emoji=False)


def inked(text: str, style: str) -> Text:
    """Just these words with a style; `Text(text, style)` would pass it on to what is appended."""
    return Text().append(text, style)


class Page:
    """How wide the text may be, and how a paragraph is laid out in it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = max(NARROWEST, min(console.width, WIDEST))
        self.is_unicode = console.encoding.startswith("utf")

    def hang(self, first: Text, body: Text, *, indent: int = LABEL) -> Iterator[Text]:
        """A paragraph after `first`, all its lines indented alike."""
        room = self.width - indent
        for place, line in enumerate(body.wrap(self.console, room, tab_size=4)):
            line.rstrip()
            lead = first.copy() if place == 0 else Text()
            lead.pad_right(max(0, indent - lead.cell_len))
            yield lead.append_text(line)

    def labelled(self, label: str, body: str | Text, *, style: str = "") -> Iterator[Text]:
        """A line of the form '  remedy    what to do'."""
        text = body if isinstance(body, Text) else Text(body)
        yield from self.hang(Text("  ").append(label, style or "bold"), text)

    def heading(self, left: Text, right: str) -> Iterator[Text]:
        """'── left ───────── right ──', or two lines where that does not fit."""
        line = inked("── ", "dim").append_text(left).append(" ")
        room = self.width - line.cell_len - cell_len(right) - len(" ──") - 1
        if room < 0:
            yield line.append("─" * max(0, self.width - line.cell_len), "dim")
            yield from self.hang(Text(), inked(right, "dim"), indent=3)
            return
        tail = f" {right} ──" if right else "─" * 4
        yield line.append("─" * room, "dim").append(tail, "dim")

    def drawn(self, line: Text) -> Text:
        """The line as this console can show it."""
        if self.is_unicode:
            return line
        encoding = self.console.encoding
        text = line.plain.translate(ASCII).encode(encoding, "replace").decode(encoding)
        return Text(text, spans=line.spans)


# ---- the report ---------------------------------------------------------------------------------


def _report(report: Report, page: Page, read: Read) -> Iterator[Text]:
    findings = [finding for finding in report.findings if finding.severity != "info"]
    remarks = [finding for finding in report.findings if finding.severity == "info"]
    for finding in findings:
        yield from _finding(finding, report, page, read)
        yield Text()
    if report.verdict != "healthy":
        yield from stacks.as_lines(report.stacks, page)
    for finding in remarks:
        yield from _remark(finding, page)
    yield from _ladder(report, page)
    for note in report.notes:
        yield from page.hang(inked("note: ", "dim"), inked(words.plain(note), "dim"), indent=6)
    yield from _ruled_out(report, page)
    yield from _verdict(report, page)


def _finding(finding: Finding, report: Report, page: Page, read: Read) -> Iterator[Text]:
    where = finding.where
    place = f"{words.short_path(where.file)}:{where.line}" if where else ""
    title = inked(f"{finding.severity} {finding.code}", STYLES[finding.severity])
    yield from page.heading(title.append(f" {words.plain(finding.cause)}", "bold"), place)
    yield from page.hang(Text(), Text(words.sentence(finding.message)), indent=0)
    yield from _source(finding, page, read)
    yield from _evidence(finding, page)
    yield from _remedy(finding, page)
    yield from _proof(finding, page)
    yield from _other_way(finding, report, page)
    yield from page.labelled("more", f"penstock explain {finding.code}", style="dim")


def _source(finding: Finding, page: Page, read: Read) -> Iterator[Text]:
    found = excerpt(finding.where, read=read)
    if found is None:
        yield Text()
        return
    gutter = f"  {found.line:>3} │ "
    shown = shortened(found, page.width - len(gutter))
    blank = " " * (len(gutter) - 2)
    before, marked = cell_len(shown.text[: shown.start]), cell_len(shown.text[shown.start : shown.stop])
    yield inked(blank + "│", "blue")
    yield inked(gutter, "blue").append(shown.text)
    carets = " " * before + "^" * max(1, marked)
    yield inked(blank + "│ ", "blue").append(carets, STYLES[finding.severity])
    yield Text()


def _evidence(finding: Finding, page: Page) -> Iterator[Text]:
    label = "evidence"
    for each in finding.evidence:
        text = Text(f"{words.plain(each.fact)}: {words.plain(each.value)}")
        yield from page.labelled(label, text.append(f"  ({words.plain(each.source)})", "dim"))
        label = ""


def _remedy(finding: Finding, page: Page) -> Iterator[Text]:
    prescription = finding.prescription
    yield from page.labelled("remedy", inked(words.plain(prescription.change), "bold"))
    if prescription.expect:
        yield from page.labelled("", f"expect: {words.plain(prescription.expect)}")
    if prescription.patch:
        yield from _patch(prescription.patch, page)


def _patch(patch: str, page: Page) -> Iterator[Text]:
    lines = words.lines(patch.rstrip("\n"))
    for line in lines[:MOST_PATCH_LINES]:
        text = Text(" " * LABEL).append(line, _patch_style(line))
        text.truncate(page.width, overflow="ellipsis")
        yield text
    left = len(lines) - MOST_PATCH_LINES
    if left > 0:
        yield Text(" " * LABEL).append(f"… and {words.counted(left, 'more line')}", "dim")


def _patch_style(line: str) -> str:
    if line.startswith(("---", "+++")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")


def _proof(finding: Finding, page: Page) -> Iterator[Text]:
    proof = finding.proof
    style = PROOF_STYLES[proof.status]
    yield from page.labelled(words.PROOFS[proof.status], words.proof(proof), style=style)
    figures = words.measured(proof)
    if figures:
        yield from page.labelled("", f"({figures})")


def _other_way(finding: Finding, report: Report, page: Page) -> Iterator[Text]:
    if finding.cured_by_penstock:
        command = inked(words.other_way(report.target), "bold")
        yield from page.labelled("or", command.append("  (tried here: it cured it)", "green"))
    elif finding.cured_by_penstock is False:
        yield from page.labelled("", inked("penstock run was tried too: it does not cure this", "dim"))


def _remark(finding: Finding, page: Page) -> Iterator[Text]:
    where = f"{words.short_path(finding.where.file)}:{finding.where.line}: " if finding.where else ""
    title = inked(f"info {finding.code} {words.plain(finding.cause)}: ", STYLES["info"])
    yield from page.hang(Text(), title.append(where + words.plain(finding.message)), indent=2)
    change = words.plain(finding.prescription.change)
    certainty = words.PROOFS[finding.proof.status]
    yield from page.hang(Text(), inked(f"{change} ({certainty})", "dim"), indent=6)
    yield Text()


def _ruled_out(report: Report, page: Page) -> Iterator[Text]:
    if report.refuted:
        names = dict.fromkeys(f"{words.plain(each.cause)} ({each.code})" for each in report.refuted)
        text = inked("suspected, tried, and not so: " + ", ".join(names), "dim")
        yield from page.hang(Text(), text, indent=0)


def _verdict(report: Report, page: Page) -> Iterator[Text]:
    sentence = words.verdict(report)
    stop = len(report.verdict)
    style = VERDICTS[report.verdict]
    text = inked(sentence[:stop].replace("-", " "), style).append(sentence[stop:])
    yield from page.hang(Text(), text, indent=0)
    if report.reason is not None:
        yield from _reason(report, page)


def _reason(report: Report, page: Page) -> Iterator[Text]:
    reason = report.reason
    assert reason is not None
    for label, text in (("why", reason.why), ("fix", reason.fix)):
        for place, line in enumerate(words.lines(text) if text else ()):
            yield from page.hang(inked("" if place else f"  {label}:", "bold"), Text(line), indent=8)
    yield from page.hang(inked("  code:", "bold"), Text(reason.code), indent=8)


# ---- the ladder ---------------------------------------------------------------------------------


def _ladder(report: Report, page: Page) -> Iterator[Text]:
    loaders = dict.fromkeys(rung.loader for rung in report.ladder)
    if report.verdict == "healthy":
        yield from _short_ladder(report, page)
        return
    for loader in loaders:
        rungs = [rung for rung in report.ladder if rung.loader == loader]
        title = f"ladder of {words.loader(loader, report)}" if len(loaders) > 1 else "ladder"
        yield from _table(rungs, title, page)
        yield Text()


def _short_ladder(report: Report, page: Page) -> Iterator[Text]:
    for loader in dict.fromkeys(rung.loader for rung in report.ladder):
        rungs = [rung for rung in report.ladder if rung.loader == loader and rung.outcome == "ok"]
        if not rungs:
            continue
        tried = ", ".join(str(rung.num_workers) for rung in rungs)
        text = f"num_workers {tried}: ok{_best(rungs)}"
        yield from page.hang(Text(), Text(f"{words.loader(loader, report)}: {text}"), indent=0)


def _best(rungs: Sequence[Rung]) -> str:
    timed = [rung for rung in rungs if rung.samples_per_s]
    if not timed:
        return ""
    best = max(timed, key=lambda rung: rung.samples_per_s or 0)
    return f"; {words.number(best.samples_per_s or 0)} samples/s with {best.num_workers}"


def _table(rungs: Sequence[Rung], title: str, page: Page) -> Iterator[Text]:
    head = f"{'workers':>9}  {'start':<10} {'outcome':<7} {'samples/s':>9}"
    yield inked(title, "bold")
    yield inked(head, "dim")
    fastest = max((rung.samples_per_s or 0 for rung in rungs), default=0)
    for rung in rungs:
        yield from _rung(rung, fastest, page)


def _rung(rung: Rung, fastest: float, page: Page) -> Iterator[Text]:
    rate = "–" if rung.samples_per_s is None else words.number(rung.samples_per_s)
    row = Text(f"{rung.num_workers:>9}  {words.plain(rung.start_method)[:10]:<10} ")
    row.append(f"{words.plain(rung.outcome)[:7]:<7} ", OUTCOMES.get(rung.outcome, "")).append(f"{rate:>9}  ")
    room = page.width - row.cell_len
    if rung.outcome != "ok" and rung.detail not in {"", rung.outcome}:
        detail = inked(words.plain(rung.detail, limit=LONGEST_DETAIL), "dim")
        if room >= LEAST_DETAIL:
            yield from page.hang(row, detail, indent=row.cell_len)
            return
        yield row
        yield from page.hang(Text(), detail, indent=11)
        return
    share = (rung.samples_per_s or 0) / fastest if fastest else 0
    yield row.append("█" * round(share * max(0, min(BAR, room))), "green")
