"""`penstock explain CODE`: the page of an error code, in the terminal."""

from __future__ import annotations

import difflib
import shutil
import textwrap

import click

from penstock.errors import CODES

WIDEST = 88  # columns; longer lines are hard to read


@click.command("explain")
@click.argument("code", required=False)
def command(code: str | None) -> None:
    """Say what an error CODE means and what to do about it; without CODE, list them all."""
    if code is None:
        for name, (title, _) in CODES.items():
            click.echo(f"{name}  {title}")
        return
    name = code.strip().upper()
    if name not in CODES:
        close = difflib.get_close_matches(name, CODES, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise click.BadParameter(
            f"there is no code {code!r}{hint} `penstock explain` lists all codes", param_hint="CODE"
        )
    title, text = CODES[name]
    width = min(shutil.get_terminal_size().columns, WIDEST)
    click.echo(f"{click.style(name, bold=True)}  {title}\n\n{textwrap.fill(text, width)}")
