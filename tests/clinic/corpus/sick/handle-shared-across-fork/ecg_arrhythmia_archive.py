# cause: handle-shared-across-fork
"""Arrhythmia detection on twelve-lead ECGs out of one big archive file with an index at its end."""
import json
import os
import struct
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

LEADS, SAMPLES = 12, 1000


class ArchiveWriter:
    def __init__(self, path):
        self.file, self.index = open(path, "wb"), []

    def add(self, leads, rhythm):
        self.index.append({"at": self.file.tell(), "rhythm": int(rhythm), "scale": float(np.abs(leads).max()), "recorded": "clinic-7/ward-b"})
        self.file.write((leads / self.index[-1]["scale"] * 32000).astype("<i2").tobytes())

    def close(self):
        start = self.file.tell()
        self.file.write(json.dumps(self.index).encode())
        self.file.write(struct.pack("<Q", start))
        self.file.close()


class Archive:
    """Random access to the records of an archive."""

    def __init__(self, path):
        self._file = open(path, "rb")
        self._file.seek(-8, os.SEEK_END)
        start, = struct.unpack("<Q", self._file.read(8))
        self._file.seek(start)
        table = json.loads(self._file.read()[:-8])
        self.offsets = np.array([row["at"] for row in table])
        self.rhythms = np.array([row["rhythm"] for row in table])
        self.scales = np.array([row["scale"] for row in table], dtype=np.float32)

    def __len__(self):
        return len(self.offsets)

    def leads(self, number):
        self._file.seek(int(self.offsets[number]))
        signal = np.empty((LEADS, SAMPLES), dtype=np.float32)
        for lead in range(LEADS):
            trace = np.frombuffer(self._file.read(2 * SAMPLES), dtype="<i2").astype(np.float32)
            signal[lead] = trace - np.median(trace)
        return signal * (self.scales[number] / 32000)


class Electrocardiograms(Dataset):
    def __init__(self, archive, dropout=0.0):
        self.archive, self.dropout = archive, dropout

    def __len__(self):
        return len(self.archive)

    def __getitem__(self, number):
        signal = self.archive.leads(number)
        if self.dropout:
            signal[np.random.rand(LEADS) < self.dropout] = 0
        return torch.from_numpy(signal), int(self.archive.rhythms[number])


class RhythmNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(LEADS, 32, 9, stride=2), nn.ReLU(), nn.Conv1d(32, 32, 9, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(8), nn.Flatten())
        self.head = nn.Linear(256, classes)

    def forward(self, x):
        return self.head(self.body(x))


def simulate(path, count, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(SAMPLES) / 250.0
    writer = ArchiveWriter(path)
    for _ in range(count):
        rhythm = rng.integers(3)
        rate = (1.0, 1.7, 2.6)[rhythm] * rng.uniform(0.9, 1.1)
        beat = np.exp(-(((t * rate) % 1.0 - 0.4) / 0.03) ** 2) - 0.2 * np.exp(-(((t * rate) % 1.0 - 0.6) / 0.06) ** 2)
        writer.add(np.outer(rng.uniform(0.3, 1.5, LEADS), beat) + rng.normal(0, 0.05, (LEADS, SAMPLES)), rhythm)
    writer.close()


def split(count, share=0.85):
    order = torch.randperm(count).tolist()
    return order[: int(count * share)], order[int(count * share):]


def train(path, epochs=4, batch=32, workers=2):
    archive = Archive(path)
    fit, test = split(len(archive))
    options = dict(batch_size=batch, num_workers=workers, persistent_workers=True)
    fit_loader = DataLoader(Subset(Electrocardiograms(archive, dropout=0.1), fit), shuffle=True, **options)
    test_loader = DataLoader(Subset(Electrocardiograms(archive), test), **options)
    model = RhythmNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        start, total = time.perf_counter(), 0.0
        for signal, rhythm in fit_loader:
            loss = nn.functional.cross_entropy(model(signal), rhythm)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rhythm)
        with torch.no_grad():
            hits = sum((model(x).argmax(1) == y).sum().item() for x, y in test_loader)
        print(f"epoch {epoch}: loss {total / len(fit):.3f}, test {hits / len(test):.3f}, {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="ecg-") as folder:
        target = os.path.join(folder, "records.ecg")
        simulate(target, 1800)
        train(target)
