"""`penstock demo`: the examples of two well-known answers about `num_workers`, tried on this machine.

Two examples run at a time, each run in processes of its own with a time limit; it shows what was seen.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock._cli.endings import INTERRUPTED, ended_by_signals

if TYPE_CHECKING:
    from penstock._cli.demo.stage import Scene
    from penstock._render.progress import Progress

ABREAST = 2  # examples at a time: each keeps about one core busy


@click.command("demo")
@click.option("--only", type=click.IntRange(1, 6), multiple=True, help="Just this example; may be repeated.")
def command(only: tuple[int, ...]) -> None:
    """Try six published examples: the claim, what torch does, what the doctor says, what our loader does."""
    from rich.console import Console

    from penstock._cli.demo import showing
    from penstock._render.progress import Progress

    console = Console(highlight=False)
    began = time.monotonic()
    scenes: list[Scene] = []
    try:
        with ended_by_signals(), Progress(Console(stderr=True)) as progress:
            for number, scene in _played(only or range(1, 7), progress):
                progress.close()
                showing.show(number, scene, console, is_first=_is_first(scene, scenes))
                scenes.append(scene)
    except KeyboardInterrupt:
        click.echo("penstock: interrupted: the demo was ended before it was done", err=True)
        raise SystemExit(INTERRUPTED) from None
    console.print(showing.closing(scenes))
    console.print(f"\nall of it really run, in {time.monotonic() - began:.0f} s", style="dim")
    raise SystemExit(0 if all(map(showing.is_well, scenes)) else 1)


def _is_first(scene: Scene, before: Sequence[Scene]) -> bool:
    """Whether an example begins a new question."""
    return not before or before[-1].example.question != scene.example.question


def _played(numbers: Sequence[int], progress: Progress) -> Iterator[tuple[int, Scene]]:
    """The examples in their order, each as soon as it and those before it are done."""
    from penstock._cli.demo.examples import EXAMPLES
    from penstock._cli.demo.stage import Stage

    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder, Stage(Path(folder)) as stage:
        pool = ThreadPoolExecutor(ABREAST)
        try:
            futures = {n: pool.submit(stage.play, n, EXAMPLES[n - 1]) for n in dict.fromkeys(numbers)}
            for number, future in futures.items():
                progress.say(f"example {number} of 6: with torch's loader, at the doctor's, with ours")
                yield number, future.result()
        finally:
            stage.close()
            pool.shutdown(cancel_futures=True)
