"""Long runs under fire, with a full account of what was delivered. Not part of `make test`.

    python -m tests.chaos.storm kills     workers are killed at random; every batch is compared, bit by bit,
                                          with a run in which nobody was
    python -m tests.chaos.storm rate      one kill a second, against an undisturbed run, interleaved
    python -m tests.chaos.storm ready     from a kill to a successor that exists
    python -m tests.chaos.storm orphans   consumers are killed at random moments; what do they leave behind?
    python -m tests.chaos.storm soak      loaders, epochs, early breaks, kills for half an hour: what grows?

Everything follows from `--seed`. Exit status 1 when a promise is broken.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from penstock import DataLoader

BATCH = 16


class Drawing(Dataset):
    """Samples that say who they are, and random numbers of three kinds."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.own = np.random.default_rng(5)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        drawn = (random.getrandbits(40), int(np.random.randint(1 << 40)), int(self.own.integers(1 << 40)))
        return torch.cat([torch.tensor([index, *drawn]), torch.randint(1 << 40, (60,))])


def digest(batch: torch.Tensor) -> tuple[int, int]:
    """The first index of a batch, and a checksum of all of it."""
    return int(batch[0, 0]), zlib.crc32(batch.numpy().tobytes())


class Killer(threading.Thread):
    """Kills random workers of an iterator at random times, by an own source of randomness."""

    def __init__(self, iterator: Any, per_s: float, seed: int, most: int | None = None) -> None:
        super().__init__(daemon=True)
        self.iterator, self.per_s, self.most = iterator, per_s, most
        self.random = random.Random(seed)
        self.kills = 0
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.wait(self.random.expovariate(self.per_s)):
            if self.most is not None and self.kills >= self.most:
                return
            pid = self.random.choice(self.iterator._workers)._pid
            if pid is not None and _is_worker(pid):
                os.kill(pid, signal.SIGKILL)
                self.kills += 1

    def end(self) -> int:
        self.is_over.set()
        self.join()
        return self.kills


def _is_worker(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("pt_data_worker")
    except OSError:
        return False


def epoch(
    loader: DataLoader[Any], *, per_s: float = 0, seed: int = 0, most: int | None = None
) -> tuple[list[Any], int]:
    """Digests of one epoch, and the kills in it."""
    iterator = iter(loader)
    killer = Killer(iterator, per_s, seed, most) if per_s else None
    if killer is not None:
        killer.start()
    try:
        return [digest(batch) for batch in iterator], 0 if killer is None else killer.end()
    finally:
        if killer is not None:
            killer.end()


def kills(options: argparse.Namespace) -> bool:
    """0 lost, 0 repeated, 0 out of order, 0 different bits."""
    per_epoch = 10_000
    length = per_epoch * BATCH
    done, killed, lost, repeated, misplaced, different = 0, 0, 0, 0, 0, 0
    start, number = time.monotonic(), 0
    while done < options.batches or killed < options.kills:
        make = {"batch_size": BATCH, "seed": options.seed}
        reference = DataLoader(Drawing(length), num_workers=1, **make)
        stormy = DataLoader(Drawing(length), num_workers=3, multiprocessing_context=options.method, **make)
        reference.epoch = stormy.epoch = number
        expected, _ = epoch(reference)
        got, here = epoch(stormy, per_s=options.per_s, seed=options.seed + number)
        firsts = [first for first, _ in got]
        lost += len({first for first, _ in expected} - set(firsts))
        repeated += len(firsts) - len(set(firsts))
        misplaced += sum(a > b for a, b in itertools.pairwise(firsts))
        different += sum(a != b for a, b in zip(expected, got, strict=False))
        done, killed, number = done + len(got), killed + here, number + 1
        print(f"{done:7} batches, {killed:5} kills: {lost} lost, {repeated} repeated, "
              f"{misplaced} out of order, {different} different", flush=True)  # fmt: skip
    print(f"{time.monotonic() - start:.0f} s")
    return not (lost or repeated or misplaced or different)


def rate(options: argparse.Namespace) -> bool:
    """Throughput with one kill a second, against none."""
    ratios = []
    for number in range(options.rounds):
        rates = []
        for per_s in (0.0, 1.0):
            loader = DataLoader(Slow(), batch_size=BATCH, num_workers=2)
            start = time.monotonic()
            got, _ = epoch(loader, per_s=per_s, seed=number)
            rates.append(len(got) / (time.monotonic() - start))
        ratios.append(rates[1] / rates[0])
        print(f"{rates[0]:6.0f} and {rates[1]:6.0f} batches/s: {ratios[-1]:.2f}", flush=True)
    median = statistics.median(ratios)
    print(
        f"with one kill a second: {median:.2f} of the undisturbed rate ({min(ratios):.2f}-{max(ratios):.2f})"
    )
    return median >= 0.75


class Slow(Dataset):
    """Samples of a millisecond of work, for some seconds."""

    def __len__(self) -> int:
        return 16_000

    def __getitem__(self, index: int) -> torch.Tensor:
        end = time.thread_time() + 0.001
        while time.thread_time() < end:
            pass
        return torch.tensor([index])


def ready(options: argparse.Namespace) -> bool:
    """From a kill to a successor that runs."""
    loader = DataLoader(Drawing(10**9), batch_size=BATCH, num_workers=2)
    iterator = iter(loader)
    times = []
    source = random.Random(options.seed)
    next(iterator)
    zygote = iterator._runtime._backend.zygote.pid  # type: ignore[attr-defined]
    for _ in range(options.times):
        for _ in range(20):
            next(iterator)
        before = _children(zygote)
        victim = source.choice(sorted(before))
        start = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        while not _children(zygote) - before:
            next(iterator)
        times.append(time.monotonic() - start)
    del iterator
    median = statistics.median(times) * 1000
    print(f"successor after {median:.1f} ms in the median ({min(times) * 1000:.1f}-{max(times) * 1000:.1f})")
    return median < 100


def _children(pid: int) -> set[int]:
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


CONSUMER = """
import sys, torch
from penstock import DataLoader
from tests.chaos.storm import Drawing
method, = sys.argv[1:]
while True:
    for batch in DataLoader(Drawing(4000), batch_size=16, num_workers=2, multiprocessing_context=method):
        pass
"""


def orphans(options: argparse.Namespace) -> bool:
    """Kill consumers at random moments; count what is left a second later."""
    source = random.Random(options.seed)
    mark = f"storm-{os.getpid()}"
    own = tempfile.mkdtemp(prefix="storm-")  # other programs use /tmp too
    before = _files(own)
    left = 0
    for number in range(options.times):
        method = source.choice(["fork", "spawn", "forkserver"])
        process = subprocess.Popen(
            [sys.executable, "-c", CONSUMER, method], env={**os.environ, "STORM": mark, "TMPDIR": own}
        )
        time.sleep(source.uniform(1.5, 4.0) if number % 4 else source.uniform(0.0, 1.5))
        process.kill()
        process.wait()
        time.sleep(1.0)
        survivors = list(_marked(mark))
        for pid in survivors:
            os.kill(pid, signal.SIGKILL)
        left += len(survivors)
        if survivors or number % 20 == 19:
            print(
                f"{number + 1:4} consumers killed: {left} processes left, {len(_files(own) - before)} files",
                flush=True,
            )
    found = sorted(_files(own) - before)
    if found:
        print("left behind:", *found, flush=True)
    shutil.rmtree(own)
    return not left and not found


def _marked(mark: str) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if f"STORM={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)
            except OSError:
                continue


def _files(own: str) -> set[str]:
    return {str(path) for folder in ("/dev/shm", own) for path in Path(folder).glob("*")}


def soak(options: argparse.Namespace) -> bool:
    """Loaders, epochs, early breaks and kills: memory, descriptors, threads and segments stay flat."""
    source = random.Random(options.seed)
    end = time.monotonic() + options.minutes * 60
    rows: list[tuple[float, ...]] = []
    rounds = 0
    while time.monotonic() < end:
        length = source.choice([400, 4000])
        loader = DataLoader(
            Drawing(length),
            batch_size=BATCH,
            num_workers=source.choice([1, 2, 3]),
            persistent_workers=source.random() < 0.5,
            multiprocessing_context=source.choice(["fork", "fork", "spawn"]),
        )
        for _ in range(source.choice([1, 3])):
            _one_epoch(loader, source)
        del loader
        gc.collect()
        rounds += 1
        if rounds % 10 == 0:
            rows.append((time.monotonic(), *_footprint()))
            print(f"{rounds:5} loaders: RSS {rows[-1][1] / 2**20:.1f} MiB, {rows[-1][2]:.0f} descriptors, "
                  f"{rows[-1][3]:.0f} threads, {rows[-1][4]:.0f} mappings", flush=True)  # fmt: skip
    return _is_flat(rows[len(rows) // 5 :])  # the first part warms caches up


def _one_epoch(loader: DataLoader[Any], source: random.Random) -> None:
    iterator = iter(loader)
    stop = source.choice([1, 20, 10**9])
    for count, batch in enumerate(iterator):
        assert int(batch[0, 0]) == count * BATCH
        if source.random() < 0.01:
            pid = source.choice(iterator._workers).pid  # type: ignore[attr-defined]
            if pid and _is_worker(pid):
                os.kill(pid, signal.SIGKILL)
        if count >= stop:
            return


def _footprint() -> tuple[float, float, float, float]:
    status = Path("/proc/self/status").read_text()
    rss = int(status.split("VmRSS:")[1].split()[0]) * 1024
    threads = int(status.split("Threads:")[1].split()[0])
    maps = Path("/proc/self/maps").read_text()
    return rss, len(list(Path("/proc/self/fd").iterdir())), threads, maps.count("memfd:")


def _is_flat(rows: list[tuple[float, ...]]) -> bool:
    """Whether no column has a slope that is different from zero (by more than three standard errors)."""
    table = np.array(rows)
    hours = (table[:, 0] - table[0, 0]) / 3600
    is_flat = True
    for column, name in enumerate(("RSS", "descriptors", "threads", "memfd mappings"), start=1):
        values = table[:, column]
        slope, offset = np.polyfit(hours, values, 1)
        rest = values - (slope * hours + offset)
        error = np.sqrt(
            rest @ rest / max(1, len(rows) - 2) / ((hours - hours.mean()) @ (hours - hours.mean()) or 1)
        )
        # A level that jitters by less than a hundredth is flat, however sure the slope.
        grows = slope > 3 * error and slope * hours[-1] > 0.01 * values.mean()
        is_flat &= not grows
        print(f"{name}: {slope:+.1f} an hour, standard error {error:.1f}, mean {values.mean():.1f}"
              f"{': GROWS' if grows else ''}")  # fmt: skip
    return is_flat


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["kills", "rate", "ready", "orphans", "soak"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=1000, help="at least so many")
    parser.add_argument("--batches", type=int, default=100_000, help="at least so many")
    parser.add_argument("--per-s", type=float, default=10.0, help="kills a second, of `kills`")
    parser.add_argument("--method", default="fork", choices=["fork", "spawn", "forkserver"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=30.0)
    options = parser.parse_args()
    is_kept = {"kills": kills, "rate": rate, "ready": ready, "orphans": orphans, "soak": soak}[options.what](
        options
    )
    print("kept" if is_kept else "BROKEN")
    sys.exit(not is_kept)


if __name__ == "__main__":
    main()
