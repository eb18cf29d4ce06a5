"""`penstock explain CODE`: the page of a code or a cause, in the terminal."""

from __future__ import annotations

import shutil
from typing import Any

import click

from penstock._clinic import pages

WIDEST = 80  # columns; longer lines are hard to read
STYLES: dict[str, dict[str, Any]] = {
    "title": {"bold": True},
    "heading": {"bold": True, "fg": "cyan"},
    "code": {"fg": "green"},
    "text": {},
}


@click.command("explain")
@click.argument("code", required=False)
@click.option("--color/--no-color", default=None, help="Colour, whatever the terminal.")
def command(code: str | None, *, color: bool | None) -> None:
    """Say what a code or a cause means, how it is found, and what to do; without CODE, list them all.

    CODE is the code of an error or a finding (PS301), or the name of a cause (rng-repeated).
    """
    if code is None:
        _list(color=color)
        return
    page = pages.find(code)
    if page is None:
        close = pages.nearest(code)
        hint = f"did you mean {close}? " if close else ""
        text = f"there is no code or cause {code!r}; {hint}`penstock explain` lists them all"
        raise click.BadParameter(text, param_hint="CODE")
    width = min(shutil.get_terminal_size().columns, WIDEST)
    for kind, line in pages.terminal(page, width):
        click.echo(click.style(line, **STYLES[kind]) if line else "", color=color)


def _list(*, color: bool | None) -> None:
    for place, (title, rows) in enumerate(pages.families()):
        click.echo(("\n" if place else "") + click.style(title, bold=True), color=color)
        for code, name in rows:
            click.echo(f"  {code}  {name}", color=color)
