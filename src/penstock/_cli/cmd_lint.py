"""`penstock lint PATHS`: read the source, run nothing, import no torch.

Exit status: 0 nothing found, 1 errors or warnings, 2 a wrong call or a named file that cannot be read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from penstock._cli.linted import FORMATS, rendered
from penstock._clinic import source as sources
from penstock._clinic.lint import Linted, is_telling, lint
from penstock._clinic.settings import Options, options
from penstock._clinic.source import Source
from penstock.errors import SettingsError

STDIN = "-"


@click.command("lint")
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="Of the findings (text).")
@click.option("-o", "--output", "file", help="File for the findings, in place of standard output.")
@click.option("--select", multiple=True, metavar="CODES", help="Only these codes or causes.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Not these codes or causes.")
@click.option("--info", is_flag=True, help="Show remarks too: habits that may cost memory or time.")
@click.pass_context
def command(ctx: click.Context, /, paths: tuple[str, ...], **given: Any) -> None:
    """Find mistakes with DataLoaders in source files, without running them.

    PATHS are files, notebooks or folders (all Python files in them); - is standard input. A comment
    `# penstock: ignore[PS115]` silences its line; [tool.penstock] in pyproject.toml can select and ignore.
    """
    named = paths or (".",)
    chosen = _options(ctx, given, named)
    read = _read(named)
    linted = _shown(lint(read, chosen), everything=given["info"] or bool(chosen.select))
    text = rendered(linted, read, given["form"])
    if given["file"]:
        from penstock._cli import output

        output.write(Path(given["file"]), click.unstyle(text))
    else:
        click.echo(text, nl=False)
    _complain(linted.notes, read)
    ctx.exit(_status(linted, read, named))


def _options(ctx: click.Context, given: dict[str, Any], paths: tuple[str, ...]) -> Options:
    first = Path(paths[0])
    said = {name: given[name] for name in ("select", "ignore") if given[name]}
    try:
        if given["file"]:
            from penstock._cli import output

            output.refuse_unwritable(Path(given["file"]))
        return options(said, near=first if first.is_dir() else first.parent)
    except SettingsError as error:
        raise click.UsageError(str(error), ctx) from None
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"cannot write it: {error}", ctx, param_hint="--output") from None


def _read(paths: tuple[str, ...]) -> Source:
    """Every file; those found in folders only when they can concern us."""
    if STDIN in paths:
        return sources.read_text(sys.stdin.read())
    found = (path for path in sources.find(paths) if path in paths or _concerns(path))
    return sources.read(found)


def _concerns(path: str) -> bool:
    try:
        return is_telling(Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return True  # reading it says why


def _shown(linted: Linted, *, everything: bool) -> Linted:
    findings = tuple(each for each in linted.findings if everything or each.severity != "info")
    return Linted(findings, linted.notes)


def _complain(notes: Iterable[str], read: Source) -> None:
    for path, why in read.broken.items():
        click.echo(f"{path}: cannot be read: {why}", err=True)
    for note in notes:
        click.echo(f"penstock: {note} (a bug of penstock; the other rules were asked)", err=True)


def _status(linted: Linted, read: Source, paths: tuple[str, ...]) -> int:
    if any(path in paths or path == "<stdin>" for path in read.broken):
        return 2
    return 1 if any(each.severity != "info" for each in linted.findings) else 0
