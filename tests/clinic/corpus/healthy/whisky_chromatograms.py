"""Distillery classification from gas chromatograms. Workers by forkserver, kept for the whole run."""
import functools
import multiprocessing
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

POINTS, RECORDS, CLASSES = 6000, 240, 6


class RunArchive:
    """One binary file of chromatograms; the handle and its lock belong to the process that reads."""

    def __init__(self, path):
        self.path = path
        self._file = None
        self._lock = threading.Lock()

    def __getstate__(self):
        return {"path": self.path}

    def __setstate__(self, state):
        self.__init__(state["path"])

    def record(self, i):
        with self._lock:
            if self._file is None:
                self._file = open(self.path, "rb")
            self._file.seek(i * POINTS * 4)
            return np.frombuffer(self._file.read(POINTS * 4), np.float32)


def shift(trace, limit):
    return np.roll(trace, int(torch.randint(-limit, limit + 1, ())))


def baseline(trace, rounds):
    base = trace.copy()
    for w in range(1, rounds):
        base[w:-w] = np.minimum(base[w:-w], (base[:-2 * w] + base[2 * w:]) / 2)
    return trace - base


class Chromatograms(Dataset):
    def __init__(self, archive, labels, repeats, steps):
        self.archive, self.labels, self.repeats, self.steps = archive, labels, repeats, steps

    def __len__(self):
        return len(self.labels) * self.repeats

    def __getitem__(self, i):
        i %= len(self.labels)
        trace = self.archive.record(i)
        for step in self.steps:
            trace = step(trace)
        trace = trace.reshape(-1, 10).max(1)
        return torch.from_numpy(np.log1p(np.clip(trace, 0, None))), self.labels[i]


def distil(path):
    rng = np.random.default_rng(1)
    t = np.arange(POINTS)
    labels = []
    with open(path, "wb") as f:
        for i in range(RECORDS):
            y = np.random.default_rng(i % CLASSES)
            peaks = y.uniform(200, POINTS - 200, 25)
            heights = y.gamma(2, 4, 25) * rng.uniform(0.7, 1.3, 25)
            trace = 3 + np.sin(t / 900) + sum(h * np.exp(-((t - p) / 15) ** 2) for p, h in zip(peaks, heights))
            f.write((trace + rng.normal(0, 0.2, POINTS)).astype(np.float32).tobytes())
            labels.append(i % CLASSES)
    return labels


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ctx = multiprocessing.get_context("forkserver")
    ctx.set_forkserver_preload(["torch", "numpy"])
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "runs.bin"
        labels = distil(path)
        steps = [functools.partial(baseline, rounds=250), functools.partial(shift, limit=20)]
        loader = DataLoader(Chromatograms(RunArchive(path), labels, 6, steps), 24, shuffle=True, num_workers=2,
                            multiprocessing_context=ctx, persistent_workers=True)
        net = nn.Sequential(nn.Linear(POINTS // 10, 64), nn.ReLU(), nn.Linear(64, CLASSES))
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        for epoch in range(4):
            hits = 0
            for x, y in loader:
                out = net(x)
                opt.zero_grad()
                nn.functional.cross_entropy(out, y).backward()
                opt.step()
                hits += int((out.argmax(1) == y).sum())
            print(f"epoch {epoch} accuracy {hits / len(loader.dataset):.3f}", flush=True)


if __name__ == "__main__":
    main()
