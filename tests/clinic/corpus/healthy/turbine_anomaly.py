"""Wind turbine vibration autoencoder with a growing corruption level and per-epoch views."""
from dataclasses import dataclass
import multiprocessing as mp
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Run:
    machines: int = 6
    windows: int = 1300
    length: int = 2048
    batch: int = 26
    epochs: int = 3
    workers: int = 2
    top_corruption: float = 0.4


class Level:
    """Corruption level, set by the trainer and read by whoever makes samples."""

    def __init__(self):
        self.cell = mp.Value("d", 0.0, lock=False)

    def set(self, x):
        self.cell.value = x

    def get(self):
        return self.cell.value


class Recordings:
    """One raw float32 file per machine; opened by the process that first reads it."""

    def __init__(self, folder, run):
        self.paths = [Path(folder) / f"machine{k}.f32" for k in range(run.machines)]
        g = np.random.default_rng(0)
        self.samples = 120_000
        t = np.arange(self.samples) / 2000
        for k, p in enumerate(self.paths):
            x = sum(np.sin(2 * np.pi * f * (1 + 0.02 * k) * t + g.uniform(0, 6)) / (j + 1) for j, f in enumerate((11, 33, 87, 210)))
            (x + 0.3 * g.standard_normal(self.samples)).astype(np.float32).tofile(p)
        self._files = None

    def read(self, machine, start, n):
        if self._files is None:
            self._files = [open(p, "rb") for p in self.paths]
        f = self._files[machine]
        f.seek(4 * start)
        return np.frombuffer(f.read(4 * n), np.float32)


class Windows(Dataset):
    def __init__(self, recordings, level, run, seed):
        g = np.random.default_rng(seed)
        self.recordings, self.level, self.run = recordings, level, run
        self.machine = g.integers(0, run.machines, run.windows)
        self.start = g.integers(0, recordings.samples - run.length, run.windows)

    def __len__(self):
        return len(self.start)

    def scalogram(self, x):
        spectrum, f = np.fft.rfft(x), np.fft.rfftfreq(len(x))
        rows = [np.abs(np.fft.irfft(spectrum * np.exp(-0.5 * ((f - c) / (0.1 * c)) ** 2), len(x))) for c in np.geomspace(0.004, 0.3, 32)]
        return np.stack(rows).reshape(32, 64, -1).mean(-1)

    def __getitem__(self, i):
        x = self.recordings.read(self.machine[i], self.start[i], self.run.length)
        clean = torch.from_numpy(np.log1p(self.scalogram(x)).astype(np.float32))
        level = self.level.get()
        noisy = self.scalogram(x + level * np.random.standard_normal(len(x)))
        noisy = torch.from_numpy(np.log1p(noisy).astype(np.float32)) * (torch.rand(32, 1) >= level / 4)
        return noisy[None], clean[None], level


class Journal:
    """Collects log lines and writes them from a thread of its own at the end of training."""

    def __init__(self):
        self.lines, self.lock = [], threading.Lock()

    def add(self, line):
        with self.lock:
            self.lines.append(line)
        print(line, flush=True)

    def save(self, path):
        t = threading.Thread(target=lambda: path.write_text("\n".join(self.lines)))
        t.start()
        t.join()


def autoencoder():
    return nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1))


def train(run, folder):
    level, journal = Level(), Journal()
    windows = Windows(Recordings(folder, run), level, run, seed=4)
    loader = DataLoader(windows, run.batch, shuffle=True, num_workers=run.workers, persistent_workers=run.workers > 0)
    net = autoencoder()
    opt = torch.optim.AdamW(net.parameters(), 3e-3)
    for epoch in range(run.epochs):
        level.set(run.top_corruption * epoch / (run.epochs - 1))
        t, losses, levels = time.time(), [], []
        for noisy, clean, at in loader:
            loss = nn.functional.mse_loss(net(noisy), clean)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            levels.append(at.mean().item())
        journal.add(f"epoch {epoch} loss {np.mean(losses):.4f} at corruption {np.mean(levels):.2f}, {time.time() - t:.1f} s")
        torch.save(net.state_dict(), Path(folder) / "last.pt")
    journal.save(Path(folder) / "log.txt")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="turbines-") as tmp:
        train(Run(), tmp)
