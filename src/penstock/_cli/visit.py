"""One visit to the doctor: examine, show, mend if asked, deliver.

    examine ──▶ text to the terminal ──▶ [--fix: write patches, examine again] ──▶ --output or stdout

Text goes to standard output, unless another format goes there; then it goes to standard error, where progress
goes too. Ends cleanly by Ctrl-C, SIGTERM and SIGHUP: the exam hears of them as exceptions and clears up.
"""

from __future__ import annotations

import dataclasses
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from penstock._cli import output, patching
from penstock._cli.endings import INTERRUPTED, ended_by_signals
from penstock._clinic.report import Reason, Report
from penstock._clinic.settings import Options
from penstock._render import as_text
from penstock._render.progress import Progress

# (target, its arguments, options, what is told while it works) -> report
Examine = Callable[[str, Sequence[str], Options, Callable[[str], None]], Report]

COULD_NOT_RUN = 2


def examine(target: str, arguments: Sequence[str], chosen: Options, say: Callable[[str], None]) -> Report:
    """Call the doctor."""
    from penstock import doctor

    return doctor.examine(target, arguments, progress=say, **dataclasses.asdict(chosen))


@dataclass(frozen=True, slots=True)
class Visit:
    """What was asked for, and how to answer."""

    target: str
    arguments: Sequence[str]
    options: Options
    examine: Examine
    is_quiet: bool = False
    color: bool | None = None  # None: as the terminal says

    def run(self, *, fix: bool) -> int:
        """Do it; the exit status."""
        try:
            with ended_by_signals():
                report = self._examined()
                self._show(report)
                if fix:
                    report = self._mended(report)
        except KeyboardInterrupt:
            self._say("interrupted: the exam was ended before it was done")
            return INTERRUPTED
        return report.exit_status if self._delivered(report) else COULD_NOT_RUN

    def _examined(self) -> Report:
        with Progress(self._console(is_error=True), quiet=self.is_quiet) as progress:
            try:
                return self.examine(self.target, self.arguments, self.options, progress.say)
            except Exception as error:  # noqa: BLE001 - a traceback's status 1 would read as "sick"
                progress.close()
                traceback.print_exc()
                return _broken(self.target, error)

    def _show(self, report: Report) -> None:
        if self._has_stdout and self.is_quiet:
            return
        try:
            as_text.show(report, self._console(is_error=self._has_stdout, is_forced=bool(self.color)))
        except UnicodeError:
            traceback.print_exc()  # the report is still delivered, and its status kept

    def _mended(self, report: Report) -> Report:
        """Write the patches, examine again, and take them back if the program no longer runs."""
        written = [each for patch in _patches(report) for each in self._written(patch)]
        if not written:
            self._say("nothing was changed: no finding has a patch that can be applied")
            return report
        again = self._examined()
        self._show(again)
        if again.verdict == "could-not-run":
            for each in reversed(written):
                each.undo()
            self._say("the changed program could not be examined: every file was put back as it was")
            return report
        return again

    def _written(self, patch: str) -> list[patching.Written]:
        try:
            written = patching.write(patch, base=Path.cwd())
        except (patching.PatchRefusedError, OSError) as error:
            self._say(f"a patch was not applied: {error}")
            return []
        for each in written:
            self._say(f"changed {each.file}; the old text is in {each.backup.name}")
        return written

    def _delivered(self, report: Report) -> bool:
        """Write the report where it was asked for; whether that was possible."""
        if self._has_stdout:
            click.echo(_formatted(report, self.options.format), nl=False)
        elif self.options.output is not None:
            try:
                output.write(Path(self.options.output), _formatted(report, self.options.format))
            except OSError as error:
                self._say(f"the report could not be written to {self.options.output}: {error}")
                return False
        return True

    @property
    def _has_stdout(self) -> bool:
        """Whether standard output belongs to a format that a program reads."""
        return self.options.format != "text" and self.options.output is None

    def _console(self, *, is_error: bool, is_forced: bool = False) -> Console:
        is_plain = self.color is False or (self.color is None and bool(os.environ.get("NO_COLOR")))
        return Console(
            stderr=is_error,
            color_system=None if is_plain else "auto",
            no_color=is_plain,
            force_terminal=True if is_forced else None,
            highlight=False,
        )

    @staticmethod
    def _say(sentence: str) -> None:
        click.echo(f"penstock: {sentence}", err=True)


def _patches(report: Report) -> list[str]:
    """The patches of what makes the program sick and was not refuted, worst first, each once."""
    sick = [each for each in report.findings if each.severity != "info" and each.proof.status != "refuted"]
    return list(dict.fromkeys(each.prescription.patch for each in sick if each.prescription.patch))


def _formatted(report: Report, name: str) -> str:
    """The report in one of the formats."""
    if name == "json":
        from penstock._render import as_json

        return as_json.as_json(report)
    if name == "html":
        from penstock._render import as_html

        return as_html.as_html(report)
    if name == "sarif":
        from penstock._clinic.pages import page
        from penstock._render import as_sarif

        return as_sarif.as_sarif(report.findings, describe=page)
    if name == "github":
        from penstock._render import as_github

        return as_github.as_github(report.findings)
    return as_text.as_text(report)


def _broken(target: str, error: Exception) -> Report:
    reason = Reason(
        code="PS999",
        what="the doctor itself failed; this is a bug in penstock",
        why=f"{type(error).__name__}: {error}",
        fix="report it, with the traceback above",
    )
    return Report(target=target, verdict="could-not-run", seconds=0.0, reason=reason)
