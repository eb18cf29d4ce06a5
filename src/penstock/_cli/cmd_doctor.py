"""`penstock doctor TARGET`: find the cause, prove it, prescribe.

Exit status: 0 healthy, 1 sick, 2 could not run, 130 interrupted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from penstock._cli import output
from penstock._cli.visit import Visit, examine
from penstock._clinic.settings import Options, options
from penstock.errors import SettingsError

FORMATS = ("text", "json", "html", "sarif", "github")


class Doctor(click.Command):
    """Explains where the script's own options belong."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; an unknown option gets a hint."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            after = f"penstock doctor SCRIPT -- {error.option_name}"
            hint = f"If it is an option of your script, put it after two dashes: {after}"
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from None


@click.command("doctor", cls=Doctor)
@click.argument("target")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--format", type=click.Choice(FORMATS), help="Of the report (text).")
@click.option("-o", "--output", help="File for the report; text is shown anyway.")
@click.option("--timeout", type=float, help="Seconds for the whole exam (120).")
@click.option("--quick/--thorough", default=None, help="Only num_workers=0 and your own number.")
@click.option("--select", multiple=True, metavar="CODES", help="Only these codes or causes.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Not these codes or causes.")
@click.option("--experiments/--no-experiments", default=None, help="Prove by trials what is suspected.")
@click.option("--workers", type=int, help="The ladder goes no higher.")
@click.option("--fix", is_flag=True, help="Write the patches (a backup stays), and examine again.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing while it works.")
@click.option("--color/--no-color", default=None, help="Colour, whatever the terminal.")
@click.pass_context
def command(ctx: click.Context, /, target: str, arguments: tuple[str, ...], **given: Any) -> None:
    """Find what is wrong with a program's DataLoaders, prove it by experiment, and say what to change.

    TARGET is a script, package.module, or package.module:callable that returns a loader. Its own arguments
    come after two dashes: penstock doctor train.py -- --epochs 3
    """
    fix, quiet, color = given.pop("fix"), given.pop("quiet"), given.pop("color")
    chosen = _options(ctx, given)
    visit = Visit(target, arguments, chosen, ctx.obj or examine, is_quiet=quiet, color=color)
    ctx.exit(visit.run(fix=fix))


def _options(ctx: click.Context, given: dict[str, Any]) -> Options:
    """What was asked for, checked: nothing starts when an option cannot be kept."""
    said = {name: value for name, value in given.items() if value not in {None, ()}}
    try:
        chosen = options(said, near=Path.cwd())
        if chosen.output is not None:
            output.refuse_unwritable(Path(chosen.output))
    except SettingsError as error:
        raise click.UsageError(str(error), ctx) from None
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"cannot write it: {error}", ctx, param_hint="--output") from None
    return chosen
