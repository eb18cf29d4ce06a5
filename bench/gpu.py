"""On a host with a GPU: pinned batches to the device, and the danger of reusing pinned memory.

    python -m bench.gpu stream      GB/s into the GPU, stock and ours interleaved
    python -m bench.gpu stress      copies on side streams, delayed, the CPU batch dropped at once

The stress test is about a batch whose copy has been issued and has not happened yet when the
consumer drops it. torch's own pinned blocks remember the streams that read them; memory that a
loader pins by itself does not, and when it is filled again too early the copy reads the *next*
batch. So each copy is held up on its stream by a spinning kernel, the batch is dropped at once,
and the copy is compared on the GPU with what that batch must have been. A control that reuses
two pinned buffers without asking must be caught, or the test proves nothing.

Only the standard library, numpy and torch are needed here.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset

from bench.measure import add_task_options, call, perform
from bench.work import ENDLESS, PERIOD, FloatImages

BAR_RATIO = 8.0
BAR_GB_PER_S = 18.0


def loader_class(name: str) -> Any:
    if name == "torch":
        return torch.utils.data.DataLoader
    from penstock import DataLoader

    return DataLoader


# --- tasks --------------------------------------------------------------------------------------


def stream(loader: str, workers: int, batch_size: int, warm_s: float, window_s: float) -> dict[str, Any]:
    """Load, copy to the GPU, and count bytes over a window of time; check every batch."""
    dataset = FloatImages(ENDLESS)
    begin = time.perf_counter()
    batches = iter(loader_class(loader)(dataset, batch_size, num_workers=workers, pin_memory=True))
    sums: list[torch.Tensor] = []

    def step() -> int:
        batch = next(batches)
        copy = batch.to("cuda", non_blocking=True)
        sums.append(copy.sum())  # 40 us on the device: the price of knowing that it was right
        return batch.nbytes

    step()
    torch.cuda.synchronize()
    first_s = time.perf_counter() - begin
    end = time.perf_counter() + warm_s
    # A turn of all workers at the least, whatever the clock says.
    while time.perf_counter() < end or len(sums) < 4 * workers:
        step()
    torch.cuda.synchronize()
    opened = time.perf_counter()
    cpu = os.times()
    nbytes = 0
    while time.perf_counter() < opened + window_s:
        nbytes += step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - opened
    main_cpu = os.times()
    wanted = [reference_sum(dataset, batch_size, number) for number in range(PERIOD // batch_size)]
    got = torch.stack(sums).tolist()
    wrong = sum(value != wanted[number % len(wanted)] for number, value in enumerate(got))
    return {
        "gb_per_s": nbytes / seconds / 1e9,
        "batches": len(sums),
        "wrong": wrong,
        "first_s": first_s,
        "main_cpu_share": (main_cpu.user + main_cpu.system - cpu.user - cpu.system) / seconds,
    }


def reference_sum(dataset: Any, batch_size: int, number: int) -> float:
    first = number * batch_size
    batch = torch.stack([dataset[index] for index in range(first, first + batch_size)])
    return float(batch.to("cuda").sum())


class Numbered(Dataset):
    """Rows that hold their own index in every place."""

    def __init__(self, length: int, width: int) -> None:
        self.length = length
        self.width = width

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.width,), index, dtype=torch.int32)


def reckless(dataset: Dataset, batch_size: int, **options: Any) -> Iterator[torch.Tensor]:
    """Yield batches in two pinned buffers that are filled again without asking: the control."""
    buffers = [torch.empty(batch_size, dataset.width, dtype=torch.int32).pin_memory() for _ in range(2)]
    for number in range(len(dataset) // batch_size):
        first = number * batch_size
        buffer = buffers[number % 2]
        buffer.copy_(torch.arange(first, first + batch_size, dtype=torch.int32)[:, None].expand_as(buffer))
        yield buffer


# Cycles of the spinning kernel before a copy: none, 25 us, 250 us, 1 ms at 2 GHz. In turns, so
# that copies are overtaken by later ones on other streams.
SLEEPS = (0, 50_000, 0, 500_000, 0, 50_000, 2_000_000)
BATCH_SIZE, WIDTH = 16, 1024


def stress(loader: str, workers: int, count: int) -> dict[str, Any]:
    """Copy `count` batches late on side streams and count those that arrive wrong."""
    dataset = Numbered(count * BATCH_SIZE, WIDTH)
    make = reckless if loader == "control" else loader_class(loader)
    batches = iter(make(dataset, BATCH_SIZE, num_workers=workers, pin_memory=True))
    streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(3))]
    rows = torch.arange(BATCH_SIZE, dtype=torch.int32, device="cuda")[:, None]
    wrong = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    begin = time.perf_counter()
    seen = unpinned = 0
    places: set[int] = set()
    for number in itertools.count():
        batch = next(batches, None)
        if batch is None:
            break
        turn = number % len(streams)
        with torch.cuda.stream(streams[turn]):
            if sleep := SLEEPS[number % len(SLEEPS)]:
                torch.cuda._sleep(sleep)
            copy = batch.to("cuda", non_blocking=True)
            unpinned += not batch.is_pinned() if number < 1000 else 0
            places.add(batch.data_ptr())
            del batch
            wrong[turn] += (copy != rows + number * BATCH_SIZE).any()
        seen += 1
    torch.cuda.synchronize()
    return {
        "batches": seen,
        "wrong": int(sum(int(value) for value in wrong)),
        "unpinned": unpinned,
        "places": len(places),
        "seconds": time.perf_counter() - begin,
    }


TASKS: dict[str, Callable[..., Any]] = {"stream": stream, "stress": stress}


# --- reports ------------------------------------------------------------------------------------


def report_stream(options: argparse.Namespace) -> bool:
    speeds: dict[str, list[float]] = {name: [] for name in options.loaders}
    wrong = 0
    for _, name in itertools.product(range(options.rounds), options.loaders):
        values = {
            "loader": name,
            "workers": options.workers,
            "batch_size": options.batch_size,
            "warm_s": options.warm,
            "window_s": options.window,
        }
        got, problem = call("stream", values, 180, module="bench.gpu")
        if problem:
            print(f"{name}: failed: {problem}", flush=True)
            wrong += 1
            continue
        speeds[name].append(got["gb_per_s"])
        wrong += got["wrong"]
        print(
            f"{name:10} {got['gb_per_s']:6.2f} GB/s, {got['batches']} batches, {got['wrong']} wrong, "
            f"first batch {got['first_s']:.2f} s, main process {got['main_cpu_share']:.2f} CPU",
            flush=True,
        )
    pairs = list(zip(speeds.get("penstock", []), speeds.get("torch", []), strict=False))
    if not pairs:
        return not wrong
    ratios = [ours / stock for ours, stock in pairs]
    ratio, speed = statistics.median(ratios), statistics.median(speeds["penstock"])
    print(
        f"penstock against torch: {ratio:.2f} ({min(ratios):.2f}-{max(ratios):.2f}), "
        f"bar {BAR_RATIO:g}: {verdict(ratio >= BAR_RATIO)}; "
        f"{speed:.1f} GB/s, bar {BAR_GB_PER_S:g}: {verdict(speed >= BAR_GB_PER_S)}"
    )
    return not wrong and ratio >= BAR_RATIO and speed >= BAR_GB_PER_S


def report_stress(options: argparse.Namespace) -> bool:
    is_good = True
    for name in ("control", *options.loaders):
        # The control and stock torch only show that the test is one.
        count = options.count if name == "penstock" else max(1000, options.count // 20)
        values = {"loader": name, "workers": min(4, options.workers), "count": count}
        got, problem = call("stress", values, options.stress_timeout, module="bench.gpu")
        if problem:
            print(f"{name}: failed: {problem}", flush=True)
            is_good = False
            continue
        right = got["wrong"] > 0 if name == "control" else got["wrong"] == 0 and got["batches"] == count
        is_good &= right
        print(
            f"{name:10} {got['wrong']} of {got['batches']} batches wrong, {got['places']} places in memory, "
            f"{got['unpinned']} unpinned of the first 1000, {got['seconds']:.1f} s: "
            f"{'as it must be' if right else 'NOT as it must be'}",
            flush=True,
        )
    return is_good


def verdict(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="*", metavar="WHAT", help="stream, stress; default both")
    parser.add_argument("--loaders", nargs="+", default=["torch", "penstock"])
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=float, default=3.0, help="seconds before the window")
    parser.add_argument("--window", type=float, default=6.0, help="seconds")
    parser.add_argument("--count", type=int, default=100_000, help="batches of the stress test")
    parser.add_argument("--stress-timeout", type=float, default=300.0)
    add_task_options(parser)
    options = parser.parse_args()
    if options.task:
        perform(TASKS, options)
        return 0
    if not torch.cuda.is_available():
        print("no GPU here")
        return 2
    reports = {"stream": report_stream, "stress": report_stress}
    unknown = set(options.what) - set(reports)
    if unknown:
        parser.error(f"no such measurement: {', '.join(sorted(unknown))}")
    print(f"{torch.cuda.get_device_name()}, {os.cpu_count()} CPUs, torch {torch.__version__}")
    results = [reports[name](options) for name in options.what or reports]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
