"""`penstock demo`: a classic failure, with torch's loader and with ours, side by side.

The program is the one that most threads about `num_workers` start with: large samples, a default collate,
four workers, in a container whose `/dev/shm` has Docker's 64 MB. Each loader runs it in a process of its own,
with a time limit. Nothing is assumed: the table shows what happened.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import click

SHM_MB = 64
LIMIT_S = 60.0

PROGRAM = """
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from torch.utils.data import Dataset
if sys.argv[1] == "torch":
    from torch.utils.data import DataLoader
else:
    from penstock import DataLoader

class LargeSamples(Dataset):
    def __init__(self, size):
        self.data = np.random.default_rng(0).random((size, 1024, 1024), dtype=np.float32)
    def __len__(self):
        return len(self.data)
    def __getitem__(self, index):
        return self.data[index]

if __name__ == "__main__":
    dataset = LargeSamples(100)
    start, total, samples = time.perf_counter(), 0.0, 0
    for batch in DataLoader(dataset, batch_size=10, num_workers=4):
        total += float(batch.sum(dtype=float))
        samples += len(batch)
    seconds = time.perf_counter() - start
    right = samples == 100 and abs(total - float(dataset.data.sum(dtype=float))) < 1e-3
    print("RESULT", samples, seconds, right)
"""


class Outcome(NamedTuple):
    """What one loader did."""

    loader: str
    happened: str
    is_well: bool
    seconds: float


@click.command("demo")
def command() -> None:
    """Run one of the classic failures with torch's loader and with ours, side by side."""
    from rich.console import Console

    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(PROGRAM)
        prefix = _small_shm()
        console.print(_introduction(is_small=bool(prefix)))
        outcomes = []
        for loader in ("torch", "penstock"):
            with console.status(f"training with {loader}'s DataLoader …"):
                outcomes.append(_run([*prefix, sys.executable, str(script), loader], loader))
    console.print(_table(outcomes))
    if not outcomes[1].is_well:
        raise SystemExit(1)


def _introduction(*, is_small: bool) -> str:
    place = f"a /dev/shm of {SHM_MB} MB, as in a Docker container" if is_small else "this machine as it is"
    return (
        "[bold]100 samples of 4 MB, batches of 10, num_workers=4[/bold], in "
        f"{place}.\nThe same script, once with each DataLoader:\n"
    )


def _small_shm() -> list[str]:
    """The command prefix that gives a program its own small /dev/shm, if this user may do that."""
    if shutil.which("unshare") is None or not sys.platform.startswith("linux"):
        return []
    mount = f"mount -t tmpfs -o size={SHM_MB}m tmpfs /dev/shm"
    for flags in (["-m"], ["-Urm"]):
        prefix = ["unshare", *flags, "sh", "-c", f'{mount} && exec "$@"', "sh"]
        if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:  # noqa: S603
            return prefix
    return []


def _run(command: list[str], loader: str) -> Outcome:
    start = time.perf_counter()
    try:
        done = subprocess.run(  # noqa: S603 - our own script, written above
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env={**os.environ}
        )
    except subprocess.TimeoutExpired:
        return Outcome(loader, f"hung: no end after {LIMIT_S:.0f} s", is_well=False, seconds=LIMIT_S)
    seconds = time.perf_counter() - start
    for line in done.stdout.splitlines():
        if line.startswith("RESULT"):
            _, samples, loop_s, is_right = line.split()
            rate = int(samples) / float(loop_s)
            what = f"all {samples} samples, {rate:,.0f} per second"
            return Outcome(loader, what, is_well=is_right == "True", seconds=seconds)
    return Outcome(loader, _last_error(done.stderr), is_well=False, seconds=seconds)


def _last_error(text: str) -> str:
    errors = [line for line in text.splitlines() if "Error" in line and not line.startswith(" ")]
    return (errors or text.strip().splitlines() or ["ended without a word"])[-1]


def _table(outcomes: list[Outcome]) -> object:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("DataLoader")
    table.add_column("")
    table.add_column("what happened", overflow="fold")
    table.add_column("seconds", justify="right")
    for outcome in outcomes:
        mark = "[green]ok[/green]" if outcome.is_well else "[red]failed[/red]"
        table.add_row(outcome.loader, mark, outcome.happened, f"{outcome.seconds:.1f}")
    return table
