"""`penstock run SCRIPT`: an unmodified program with our loader in place of torch's."""

from __future__ import annotations

import difflib
import os
import sys
from pathlib import Path
from typing import Any

import click

from penstock import _install


@click.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Examples: penstock run train.py --lr 0.1; penstock run -m package.train; "
    "penstock run --on-error skip --quarantine bad.jsonl train.py",
)
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, as in `python -m`.")
@click.option("--on-error", metavar="POLICY", help="raise (default), skip, replace or retry bad samples.")
@click.option("--quarantine", metavar="FILE", help="Write bad samples to FILE, and skip those already in it.")
@click.option("--seed", type=int, help="Seed every sample by itself: the same data with any num_workers.")
@click.option("--cure/--no-cure", default=True, help="Mend certain mistakes (default), or only warn of them.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(script: str, arguments: tuple[str, ...], *, is_module: bool, **options: Any) -> None:
    """Run SCRIPT with our DataLoader in place of torch's.

    Nothing else changes: sys.argv, __main__, tracebacks and the exit status are those of
    `python SCRIPT`. Everything after SCRIPT belongs to it.
    """
    if not is_module:
        _refuse_missing(script)
    chosen = {name: value for name, value in options.items() if value is not None}
    environment = _install.environment(chosen, os.environ)
    given = list(arguments[1:] if arguments[:1] == ("--",) else arguments)
    program = ["-m", script] if is_module else [script]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *_python_options(), *program, *given], environment)  # noqa: S606


def _refuse_missing(script: str) -> None:
    path = Path(script)
    if path.exists():
        return
    folder = path.parent
    names = [each.name for each in folder.glob("*.py")] if folder.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1)
    hint = f" Did you mean {str(folder / close[0])!r}?" if close else " Use -m for the name of a module."
    raise click.BadParameter(f"there is no file {script!r}.{hint}", param_hint="SCRIPT")


def _python_options() -> list[str]:
    """The options that this Python itself was started with, such as -W or -X."""
    import subprocess

    return subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001
