"""`penstock`: the commands, each loaded when it is called."""

from __future__ import annotations

import importlib

import click

from penstock import __version__

# name: one line for --help. The module is _cli/cmd_<name>.py, with a function `command`.
COMMANDS = {
    "demo": "Try six published examples with torch, the doctor and our loader.",
    "doctor": "Find what is wrong with a program's DataLoaders, prove it, and say what to change.",
    "explain": "Say what an error code means and what to do about it.",
    "lint": "Find mistakes with DataLoaders in source files, without running them.",
    "run": "Run an unmodified script with our loader in place of torch's.",
}


class Commands(click.Group):
    """Knows the names at once and loads a command's module only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, if there is one."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"penstock._cli.cmd_{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for a name that does not exist, suggest the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(error.message + hint, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def main() -> None:
    """Find out why a PyTorch DataLoader freezes, dies or is slow; or use one that does not."""
