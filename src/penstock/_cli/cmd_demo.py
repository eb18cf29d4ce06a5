"""`penstock demo`: a classic failure, with torch's loader and with ours, side by side.

The program is the one that most threads about `num_workers` start with: large samples, a default collate,
four workers, in a container whose `/dev/shm` has Docker's 64 MB. Each loader runs it in a process of its own,
with a time limit. Nothing is assumed: the table shows what happened.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import click

SHM_MB = 64
LIMIT_S = 60.0

PROGRAM = """
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
import torch
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
    loader = DataLoader(dataset, batch_size=10, num_workers=4, persistent_workers=True)
    start, sums = time.perf_counter(), []
    for epoch in range(5):
        for batch in loader:
            sums.append(batch.sum())
    seconds = time.perf_counter() - start
    wanted = [torch.from_numpy(dataset.data[k : k + 10]).sum() for k in range(0, 100, 10)] * 5
    print("RESULT", 10 * len(sums), seconds, sums == wanted)
"""


class Outcome(NamedTuple):
    """What one loader did."""

    loader: str
    happened: str
    rate: float | None  # samples per second, when all of them came and were right


@click.command("demo")
def command() -> None:
    """Run one of the classic failures with torch's loader and with ours, side by side."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(
        "[bold]5 epochs, 100 samples of 4 MB, batches of 10, num_workers=4[/bold]: one script, two loaders.\n"
    )
    prefix = _small_shm()
    scenes = {f"in a container: /dev/shm of {SHM_MB} MB": prefix} if prefix else {}
    scenes["on this machine as it is"] = []
    is_well = True
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(PROGRAM)
        for title, before in scenes.items():
            outcomes = []
            for loader in ("torch", "penstock"):
                with console.status(f"{title}: training with {loader}'s DataLoader …"):
                    outcomes.append(_run([*before, sys.executable, str(script), loader], loader))
            console.print(_table(title, outcomes))
            is_well &= outcomes[1].rate is not None
    raise SystemExit(0 if is_well else 1)


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
    try:
        done = subprocess.run(  # noqa: S603 - our own script, written above
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(loader, f"hung: no end after {LIMIT_S:.0f} s", None)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT"):
            _, samples, seconds, is_right = line.split()
            rate = int(samples) / float(seconds)
            if is_right == "True":
                return Outcome(loader, f"all {samples} samples, {rate:,.0f} per second", rate)
            return Outcome(loader, f"wrong content in {samples} samples", None)
    return Outcome(loader, _last_error(done.stderr), None)


def _last_error(text: str) -> str:
    errors = [line for line in text.splitlines() if "Error" in line and not line.startswith(" ")]
    return (errors or text.strip().splitlines() or ["ended without a word"])[-1]


def _table(title: str, outcomes: list[Outcome]) -> object:
    from rich import box
    from rich.table import Table

    stock, ours = (outcome.rate for outcome in outcomes)
    ratio = f"   ({ours / stock:.1f} times torch's)" if stock and ours else ""
    table = Table(
        title=title, title_justify="left", title_style="", box=box.SIMPLE, pad_edge=False, show_header=False
    )
    table.add_column("DataLoader", min_width=9)
    table.add_column("verdict", min_width=7)
    table.add_column("what happened", overflow="fold")
    for outcome in outcomes:
        mark = "[red]failed[/red]" if outcome.rate is None else "[green]ok[/green]"
        table.add_row(outcome.loader, mark, outcome.happened + (ratio if outcome is outcomes[1] else ""))
    return table
