"""Frost risk in vineyards; running statistics are archived by a thread after every epoch."""
import json
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class RunningStats:
    """Mean and spread per band, shared by the data sets and the archiver."""

    def __init__(self, bands):
        self.guard = threading.Lock()
        self.mean, self.std = np.zeros(bands, np.float32), np.ones(bands, np.float32)
        os.register_at_fork(before=self.guard.acquire, after_in_parent=self.guard.release, after_in_child=self.guard.release)

    def update(self, mean, std):
        with self.guard:
            self.mean = 0.9 * self.mean + 0.1 * mean
            self.std = 0.9 * self.std + 0.1 * std

    def normalise(self, patch):
        with self.guard:
            return (patch - self.mean[:, None, None]) / self.std[:, None, None]


class Archiver:
    """Writes a snapshot next to the weights, in small pieces."""

    def __init__(self, stats, folder):
        self.stats, self.folder, self.thread = stats, Path(folder), None

    def _write(self, epoch, weights):
        with self.stats.guard:
            with open(self.folder / f"epoch{epoch}.jsonl", "w") as out:
                out.write(json.dumps({"mean": self.stats.mean.tolist(), "std": self.stats.std.tolist()}) + "\n")
                for start in range(0, len(weights), 5000):
                    out.write(json.dumps(weights[start:start + 5000]) + "\n")
                    time.sleep(0.02)

    def submit(self, epoch, model):
        self.wait()
        weights = nn.utils.parameters_to_vector(model.parameters()).tolist()
        self.thread = threading.Thread(target=self._write, args=(epoch, weights), daemon=True)
        self.thread.start()

    def wait(self):
        if self.thread is not None:
            self.thread.join()


class VineyardPatches(Dataset):
    def __init__(self, count, stats, bands=5):
        self.count, self.stats, self.bands = count, stats, bands

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        patch = rng.normal(0.4, 0.3, (self.bands, 48, 48)).astype(np.float32)
        risk = float(patch[3].mean() * 10)
        return torch.from_numpy(self.stats.normalise(patch).astype(np.float32)), torch.tensor(risk)


class FrostNet(nn.Sequential):
    def __init__(self, bands):
        super().__init__(nn.Conv2d(bands, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(48, 48, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 1))


class Session:
    def __init__(self, folder, bands=5):
        self.stats = RunningStats(bands)
        self.model = FrostNet(bands)
        self.opt = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.archiver = Archiver(self.stats, folder)
        self.loader = DataLoader(VineyardPatches(768, self.stats), batch_size=16, shuffle=True, num_workers=2)

    def epoch(self, number):
        sums = []
        for patches, risk in self.loader:
            loss = nn.functional.mse_loss(self.model(patches).squeeze(1), risk)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            sums.append((patches.mean((0, 2, 3)).numpy(), patches.std((0, 2, 3)).numpy()))
        print(f"epoch {number} loss {loss.item():.4f}", flush=True)
        self.stats.update(*(np.mean(column, axis=0) for column in zip(*sums)))
        self.archiver.submit(number, self.model)

    def run(self, epochs):
        for number in range(epochs):
            self.epoch(number)
        self.archiver.wait()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        Session(scratch).run(4)
