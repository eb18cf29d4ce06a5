# limits: nofile=256
"""Stress detection from pulse waves; subjects arrive one after another and past windows are rehearsed."""
import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WINDOW = 256


class Sessions(IterableDataset):
    def __init__(self, folder):
        super().__init__()
        self.files = sorted(Path(folder).glob("*.npz"))

    def __iter__(self):
        info = get_worker_info()
        mine = self.files if info is None else self.files[info.id::info.num_workers]
        for path in mine:
            time.sleep(0.01)                                 # archive latency
            with np.load(path) as z:
                pulse, motion, label = z["pulse"], z["motion"], z["label"]
            for p, m, y in zip(pulse, motion, label):
                yield {"pulse": self.clean(p), "motion": self.clean(m), "label": int(y)}

    @staticmethod
    def clean(x):
        spectrum = np.fft.rfft(x)
        spectrum[40:] = 0
        x = np.fft.irfft(spectrum, len(x))
        for _ in range(40):
            x = np.convolve(x, np.array([0.05, 0.9, 0.05]), "same")
        return ((x - x.mean()) / (x.std() + 1e-6)).astype(np.float32)


class Rehearsal:
    """A ring of past windows in memory of its own."""

    def __init__(self, capacity):
        self.x = torch.empty(capacity, 2, WINDOW)
        self.y = torch.empty(capacity, dtype=torch.long)
        self.n = 0

    def observe(self, x, y):
        at = torch.arange(self.n, self.n + len(y)) % len(self.y)
        self.x[at], self.y[at] = x, y
        self.n += len(y)

    def draw(self, size):
        pick = torch.randint(0, min(self.n, len(self.y)), (size,))
        return self.x[pick], self.y[pick]


def measure(root, subjects, sessions):
    rng = np.random.default_rng(3)
    t = np.arange(WINDOW) / 64
    for s in range(subjects):
        (root / f"subject{s}").mkdir()
        for k in range(sessions):
            label = rng.integers(0, 2, 24)
            pulse = np.sin(2 * np.pi * (1.0 + 0.6 * label[:, None] + 0.05 * s) * t) + rng.normal(0, 0.5, (24, WINDOW))
            np.savez(root / f"subject{s}" / f"{k:03d}.npz", pulse=pulse, motion=rng.normal(size=(24, WINDOW)), label=label)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--subjects", type=int, default=3)
    p.add_argument("--sessions", type=int, default=24)
    p.add_argument("--batch", type=int, default=12)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 16, 9, 4), nn.ReLU(), nn.Conv1d(16, 16, 9, 4), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(),
                          nn.Linear(16, 2))
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    memory, losses = Rehearsal(2000), []
    with tempfile.TemporaryDirectory() as tmp:
        measure(Path(tmp), args.subjects, args.sessions)
        for s in range(args.subjects):
            seen, hits = 0, 0
            for batch in DataLoader(Sessions(Path(tmp) / f"subject{s}"), args.batch, num_workers=args.workers):
                x, y = torch.stack([batch["pulse"], batch["motion"]], 1), batch["label"]
                out = model(x)
                loss = nn.functional.cross_entropy(out, y)
                if memory.n:
                    px, py = memory.draw(args.batch)
                    loss = loss + 0.5 * nn.functional.cross_entropy(model(px), py)
                opt.zero_grad()
                loss.backward()
                opt.step()
                time.sleep(0.02)                             # rest of the step runs on the accelerator
                memory.observe(x, y)
                losses.append(loss.detach())
                seen, hits = seen + len(y), hits + int((out.argmax(1) == y).sum())
            print(f"subject {s}: {seen} windows, accuracy {hits / seen:.3f}, loss {torch.stack(losses[-10:]).mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
