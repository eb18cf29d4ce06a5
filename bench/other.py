"""The other bars: start-up, epochs, memory, small /dev/shm, kept batches.

    python -m bench.other                     every bar, our loader
    python -m bench.other start epoch         some of them
    python -m bench.other --torch array       stock torch beside it (spawn takes its time)

Each measurement runs in a fresh process. Memory is PSS (proportional set size: shared pages are
split between those who map them), summed over the process tree, from `smaps_rollup`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

from bench.measure import add_task_options, call, perform, tree
from bench.work import FloatImages, Rows

METHODS = ("fork", "spawn", "forkserver")
GIB = 1 << 30
MIB = 1 << 20


def loader_class(name: str) -> Any:
    if name == "torch":
        return torch.utils.data.DataLoader
    from penstock import DataLoader

    return DataLoader


def pss_by_process() -> dict[int, int]:
    """Return the PSS in bytes of the calling process and each of its descendants."""
    found = {}
    for pid in tree():
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    found[pid] = int(line.split()[1]) * 1024
    return found


def pss() -> int:
    return sum(pss_by_process().values())


# --- tasks: run in a process of their own, return what json can carry ---------------------------


def start(loader: str, method: str, workers: int) -> dict[str, float]:
    """Time to the first batch for three loaders of one process, one after the other."""
    make = loader_class(loader)
    seconds = []
    for _ in range(3):
        dataset = Rows(100_000)
        begin = time.perf_counter()
        batches = iter(make(dataset, 256, num_workers=workers, multiprocessing_context=method))
        next(batches)
        seconds.append(time.perf_counter() - begin)
        del batches
    return {"first_s": seconds[0], "second_s": seconds[1], "third_s": seconds[2]}


def epoch(loader: str, workers: int) -> dict[str, float]:
    """Time from `iter()` to the first batch of later epochs with persistent workers."""
    make = loader_class(loader)
    batches = make(Rows(256 * 64), 256, num_workers=workers, persistent_workers=True)
    seconds = []
    for _ in range(12):
        begin = time.perf_counter()
        for number, _ in enumerate(batches):
            if number == 0:
                seconds.append(time.perf_counter() - begin)
    later = seconds[1:]
    return {"median_s": statistics.median(later), "max_s": max(later)}


class Rows64k(Dataset):
    """Rows of 64 KiB out of one large array."""

    def __init__(self, nbytes: int) -> None:
        # Written, not only reserved: pages that were never touched cost nothing anywhere.
        self.array = np.empty((nbytes // (1 << 16), 1 << 14), dtype=np.float32)
        self.array[:] = np.arange(len(self.array), dtype=np.float32)[:, None]

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.array[index])


def array(loader: str, method: str, workers: int, nbytes: int) -> dict[str, Any]:
    """PSS of the tree while a large array is read once by all workers."""
    dataset = Rows64k(nbytes)
    alone = pss()
    batches = loader_class(loader)(
        dataset, 64, num_workers=workers, multiprocessing_context=method, persistent_workers=True
    )
    readings = []
    sums = 0.0
    begin = time.perf_counter()
    for number, batch in enumerate(batches):
        sums += float(batch[:, 0].sum())
        if number % 32 == 0:
            readings.append(pss())
    seconds = time.perf_counter() - begin
    at_end = pss_by_process()
    assert sums == sum(range(len(dataset))), "wrong content"
    return {
        "alone": alone,
        "end": sum(at_end.values()),
        "peak": max(*readings, sum(at_end.values())),
        "consumer": at_end[os.getpid()],
        "seconds": seconds,
    }


class Names(Dataset):
    """A list of Python strings: reading one writes its reference count, and copies its page."""

    def __init__(self, length: int) -> None:
        self.names = [f"train/images/{number:08d}.jpg" for number in range(length)]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> int:
        name = self.names[index]
        return int(name[13:21])


class Scattered(Sampler[int]):
    """Every index once, far from its neighbours, without a list of them."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.step = 2_147_483_647 % length or 1  # a prime: all indices are reached

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return (number * self.step % self.length for number in range(self.length))


def strings(loader: str, workers: int, length: int, pack: bool, scattered: bool) -> dict[str, Any]:
    """PSS of the tree over one pass of a list of strings, and how fast it grows."""
    dataset = Names(length)
    alone = pss()
    options = {"pack_lists": True} if pack else {}
    batches = loader_class(loader)(
        dataset,
        1000,
        sampler=Scattered(length) if scattered else None,
        num_workers=workers,
        persistent_workers=True,
        multiprocessing_context="fork",
        **options,
    )
    every = max(1, len(batches) // 20)
    readings: list[tuple[int, int]] = []
    sums = 0
    begin = time.perf_counter()
    for number, batch in enumerate(batches):
        sums += int(batch.sum())
        if number % every == 0:
            readings.append((number, pss()))
    seconds = time.perf_counter() - begin
    end = pss()
    readings.append((len(batches), end))
    assert sums == length * (length - 1) // 2, "wrong content"
    half = [reading for reading in readings if reading[0] >= len(batches) // 2]
    return {
        "alone": alone,
        "end": end,
        "peak": max(value for _, value in readings),
        "slope": slope(readings),
        "slope_late": slope(half),
        "seconds": seconds,
    }


def slope(readings: list[tuple[int, int]]) -> float:
    """Return bytes per batch of the line through the readings."""
    numbers, values = np.array(readings, dtype=np.float64).T
    return float(np.polyfit(numbers, values, 1)[0])


class Blocks(Dataset):
    """Samples of 37.5 MB: four make a batch of 150 MB."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((150_000_000 // 16,), float(index))


def small_shm(loader: str, workers: int) -> dict[str, Any]:
    """Load 150 MB batches; the caller has made /dev/shm small."""
    room = os.statvfs("/dev/shm")
    begin = time.perf_counter()
    count = 0
    for number, batch in enumerate(loader_class(loader)(Blocks(), 4, num_workers=workers)):
        wanted = torch.arange(4 * number, 4 * number + 4).float()[:, None].expand_as(batch)
        assert torch.equal(batch, wanted), f"batch {number}: wrong content"
        count += 1
    return {
        "batches": count,
        "shm_mb": room.f_blocks * room.f_frsize / 1e6,
        "seconds": time.perf_counter() - begin,
    }


class Stamped(FloatImages):
    """Float images, each different from every other."""

    def __getitem__(self, index: int) -> torch.Tensor:
        image = super().__getitem__(index)
        image[0, 0, 0] = index
        image[2, 223, 223] = -index
        return image


def keep(loader: str, workers: int, nbytes: int) -> dict[str, Any]:
    """Keep every batch of an epoch, then look at all of them."""
    count = nbytes // (64 * 3 * 224 * 224 * 4)
    dataset = Stamped(64 * count)
    begin = time.perf_counter()
    kept = list(loader_class(loader)(dataset, 64, num_workers=workers))
    seconds = time.perf_counter() - begin
    wrong = 0
    for number, batch in enumerate(kept):
        wanted = torch.stack([dataset[index] for index in range(64 * number, 64 * number + 64)])
        wrong += not torch.equal(batch, wanted)
    places = len({batch.data_ptr() for batch in kept})
    return {
        "batches": len(kept),
        "wrong": wrong,
        "places": places,
        "gb": sum(batch.nbytes for batch in kept) / 1e9,
        "seconds": seconds,
    }


TASKS: dict[str, Callable[..., Any]] = {
    "start": start,
    "epoch": epoch,
    "array": array,
    "strings": strings,
    "small-shm": small_shm,
    "keep": keep,
}

# --- reports: call the tasks, print values against bars -----------------------------------------


def ask(task: str, wrap: tuple[str, ...] = (), timeout_s: float = 600, **values: Any) -> Any:
    """Run a task; print what went wrong and return None if it did."""
    answer, problem = call(task, values, timeout_s, module="bench.other", wrap=wrap)
    if problem:
        line("/".join(str(value) for value in (task, *values.values())), f"failed: {problem}")
    return answer


MISSED: list[str] = []


def line(what: str, value: str, bar: str = "", is_met: bool | None = None) -> None:
    verdict = "" if is_met is None else ("met" if is_met else "MISSED")
    if is_met is False:
        MISSED.append(what)
    print(f"{what:<56} {value:<26} {bar:<11} {verdict}".rstrip(), flush=True)


def import_torch_s() -> float:
    """Return how long a fresh interpreter takes to import torch, median of three."""
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def median_answer(answers: Iterable[dict[str, float] | None]) -> dict[str, float]:
    good = [answer for answer in answers if answer]
    return {key: statistics.median(answer[key] for answer in good) for key in (good or [{}])[0]}


def report_start(loaders: list[str], options: argparse.Namespace) -> None:
    baseline = import_torch_s()
    line("import torch in a fresh interpreter", f"{baseline:.2f} s")
    for method, loader in itertools.product(METHODS, loaders):
        tries = [ask("start", loader=loader, method=method, workers=8) for _ in range(options.rounds)]
        got = median_answer(tries)
        if not got:
            continue
        ours = loader == "penstock"
        line(
            f"{loader} {method}: first loader, 8 workers, first batch",
            f"{got['first_s']:.2f} s, {got['first_s'] / baseline:.2f} x import",
            "1.2 x" if ours else "",
            got["first_s"] <= 1.2 * baseline if ours else None,
        )
        line(
            f"{loader} {method}: second loader of the process",
            f"{got['second_s']:.3f} s, third {got['third_s']:.3f} s",
            "0.3 s" if ours else "",
            got["second_s"] <= 0.3 if ours else None,
        )


def report_epoch(loaders: list[str], options: argparse.Namespace) -> None:
    for loader, workers in itertools.product(loaders, (2, 8)):
        got = median_answer([ask("epoch", loader=loader, workers=workers) for _ in range(options.rounds)])
        if got:
            ours = loader == "penstock"
            line(
                f"{loader}: next epoch, {workers} persistent workers, first batch",
                f"{got['median_s'] * 1e3:.1f} ms, worst {got['max_s'] * 1e3:.1f} ms",
                "20 ms" if ours else "",
                got["median_s"] <= 0.020 if ours else None,
            )


def report_array(loaders: list[str], options: argparse.Namespace) -> None:
    for method, loader in itertools.product(METHODS, loaders):
        got = ask("array", loader=loader, method=method, workers=4, nbytes=GIB)
        if got:
            ours = loader == "penstock"
            end = got["end"] / GIB
            line(
                f"{loader} {method}: 1 GiB array, 4 workers, PSS",
                f"{end:.2f} GiB, peak {got['peak'] / GIB:.2f}",
                "1.35 GiB" if ours else "",
                end <= 1.35 if ours else None,
            )
            print(
                f"    consumer before {got['alone'] / GIB:.2f}, after {got['consumer'] / GIB:.2f}, "
                f"all others {(got['end'] - got['consumer']) / GIB:.2f} GiB; {got['seconds']:.1f} s"
            )


def report_strings(loaders: list[str], options: argparse.Namespace) -> None:
    runs = [("torch", False), ("penstock", False), ("penstock", True)]
    ends: dict[tuple[str, bool], float] = {}
    for (loader, pack), scattered in itertools.product(runs, (False, True)):
        if loader not in {*loaders, "torch"} or (scattered and not options.scattered):
            continue
        got = ask("strings", loader=loader, workers=4, length=5_000_000, pack=pack, scattered=scattered)
        if not got:
            continue
        end = got["end"] / GIB
        order = "scattered" if scattered else "in order"
        what = f"{loader}{' pack_lists' if pack else ''}: 5 M strings {order}, PSS"
        bar, is_met = "", None
        if pack:
            bar, is_met = "0.9 GiB", end <= 0.9
        elif loader == "penstock" and ("torch", scattered) in ends:
            # Equal in kind, so room for the noise of a reading: one part in fifty.
            limit = ends["torch", scattered] * 1.02
            bar, is_met = f"{limit:.2f} GiB", end <= limit
        else:
            ends[loader, scattered] = end
        line(what, f"{end:.2f} GiB, peak {got['peak'] / GIB:.2f}", bar, is_met)
        print(
            f"    before {got['alone'] / GIB:.2f} GiB; growth per batch {got['slope'] / 1024:.1f} KiB, "
            f"second half {got['slope_late'] / 1024:.1f} KiB; {got['seconds']:.1f} s"
        )


SMALL_SHM = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "sh")


def report_small_shm(loaders: list[str], options: argparse.Namespace) -> None:
    for loader in loaders:
        got = ask("small-shm", SMALL_SHM, 120, loader=loader, workers=4)
        if got:
            line(
                f"{loader}: 150 MB batches, /dev/shm of {got['shm_mb']:.0f} MB",
                f"{got['batches']} batches in {got['seconds']:.1f} s",
                "12 batches",
                got["batches"] == 12,
            )


def report_keep(loaders: list[str], options: argparse.Namespace) -> None:
    for loader in loaders:
        got = ask("keep", loader=loader, workers=2, nbytes=int(options.keep_gb * 1e9))
        if got:
            line(
                f"{loader}: list(loader) keeps {got['gb']:.1f} GB",
                f"{got['wrong']} of {got['batches']} wrong, {got['seconds']:.1f} s",
                "0 wrong",
                got["wrong"] == 0 and got["places"] == got["batches"],
            )


REPORTS = {
    "start": report_start,
    "epoch": report_epoch,
    "array": report_array,
    "strings": report_strings,
    "small-shm": report_small_shm,
    "keep": report_keep,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.other",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="*", metavar="WHAT", help=" ".join(REPORTS))
    parser.add_argument("--torch", action="store_true", help="stock torch beside ours")
    parser.add_argument("--only-torch", action="store_true", help="stock torch alone")
    parser.add_argument("--rounds", type=int, default=3, help="for start and epoch")
    parser.add_argument("--scattered", action="store_true", help="strings: also far-apart order")
    parser.add_argument("--keep-gb", type=float, default=4.0)
    add_task_options(parser)
    options = parser.parse_args()
    if options.task:
        perform(TASKS, options)
        return 0
    unknown = set(options.what) - set(REPORTS)
    if unknown:
        parser.error(f"no such bar: {', '.join(sorted(unknown))}")
    loaders = ["torch"] if options.torch or options.only_torch else []
    if not options.only_torch:
        loaders.append("penstock")
    for name in options.what or REPORTS:
        REPORTS[name](loaders, options)
    if MISSED:
        print(json.dumps({"missed": MISSED}, indent=1))
    return 1 if MISSED else 0


if __name__ == "__main__":
    sys.exit(main())
