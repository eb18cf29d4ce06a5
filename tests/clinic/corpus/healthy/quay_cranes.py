"""Crane load class from vibration.  A heartbeat thread reports the preparation phase and ends before training begins."""
import json
import os
import tempfile
import time
import threading

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Heartbeat:
    def __init__(self, path, every=0.2):
        self.path, self.every = path, every
        self.lock = threading.Lock()
        self.counts = {}
        self.done = threading.Event()
        self.thread = None

    def add(self, key, n=1):
        with self.lock:
            self.counts[key] = self.counts.get(key, 0) + n

    def _write(self):
        with self.lock:
            snapshot = dict(self.counts)
        with open(self.path + ".part", "w") as f:
            json.dump(snapshot, f)
        os.replace(self.path + ".part", self.path)

    def _beat(self):
        while not self.done.wait(self.every):
            self._write()

    def __enter__(self):
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.done.set()
        self.thread.join()
        self._write()


class Reader:
    def __init__(self, path, length, meter):
        self.path, self.length, self.meter = path, length, meter
        self.count = os.path.getsize(path) // (4 * length)

    def read(self, k):
        x = np.fromfile(self.path, dtype=np.float32, count=self.length, offset=4 * self.length * k)
        self.meter.add("records")
        return x


class Loads(Dataset):
    def __init__(self, reader, labels):
        self.reader, self.labels = reader, labels

    def __len__(self):
        return self.reader.count

    def __getitem__(self, k):
        x = self.reader.read(k)
        frames = np.lib.stride_tricks.sliding_window_view(x, 512)[::16] * np.hanning(512)
        power = np.log1p(np.abs(np.fft.rfft(frames, axis=1))).astype(np.float32)
        pooled = power[: power.shape[0] // 4 * 4].reshape(-1, 4, power.shape[1]).mean(1)
        return torch.from_numpy(pooled[None]), int(self.labels[k])


def record(path, n, length, meter):
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, n)
    t = np.arange(length) / 1000
    with open(path, "wb") as f:
        for y in labels:
            wave = np.sin(2 * np.pi * 50 * t) + 0.6 * y * np.sin(2 * np.pi * 170 * t) + rng.normal(0, 0.5, length)
            f.write(wave.astype(np.float32).tobytes())
            meter.add("written")
    return labels


def main():
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory(prefix="cranes_") as folder:
        path = os.path.join(folder, "cranes.f32")
        meter = Heartbeat(os.path.join(folder, "progress.json"))
        with meter:
            labels = record(path, 192, 8192, meter)
            data = Loads(Reader(path, 8192, meter), labels)
            shape = data[0][0].shape
        print("windows of", tuple(shape), flush=True)
        loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
        net = nn.Sequential(nn.Conv2d(1, 8, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d((1, 32)), nn.Flatten(), nn.Linear(256, 2))
        opt = torch.optim.Adam(net.parameters(), lr=3e-3)
        for epoch in range(3):
            hits = 0
            for x, y in loader:
                logits = net(x)
                loss = nn.functional.cross_entropy(logits, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                time.sleep(0.08)    # stands for the accelerator
                hits += (logits.argmax(1) == y).sum().item()
            print(f"epoch {epoch} loss {loss.item():.4f} accuracy {hits / len(data):.3f}", flush=True)


if __name__ == "__main__":
    main()
