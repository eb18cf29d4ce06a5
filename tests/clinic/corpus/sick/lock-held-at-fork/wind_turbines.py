# cause: lock-held-at-fork
"""Blade fault detection.  A meter thread counts how many records were served and writes a heartbeat file."""
import json
import os
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Meter:
    """Counters with a heartbeat; the file must never be half written when the counters move."""

    def __init__(self, path, every):
        self.path, self.every = path, every
        self.cond = threading.Condition(threading.Lock())
        self.counts = {}
        self.closed = False
        self.thread = threading.Thread(target=self._beat, name="meter", daemon=True)

    def start(self):
        self.thread.start()
        return self

    def add(self, key, n=1):
        with self.cond:
            self.counts[key] = self.counts.get(key, 0) + n

    def _flush(self):
        tmp = self.path + ".part"
        with open(tmp, "w") as f:
            json.dump({"at": time.time(), **self.counts}, f)
            f.flush()
            os.fsync(f.fileno())
        time.sleep(self.every)      # a shared mount takes its time to show the file
        os.replace(tmp, self.path)

    def _beat(self):
        while True:
            with self.cond:
                if self.closed:
                    return
                self._flush()
            time.sleep(0.01)

    def stop(self):
        with self.cond:
            self.closed = True
        self.thread.join()


class Metered:
    """Adds counting to any reader."""

    def __init__(self, reader, meter):
        self.reader, self.meter = reader, meter

    def __getattr__(self, name):
        if name in ("reader", "meter"):
            raise AttributeError(name)
        return getattr(self.reader, name)

    def read(self, k):
        out = self.reader.read(k)
        self.meter.add("records")
        self.meter.add("bytes", out.nbytes)
        return out


class BladeReader:
    def __init__(self, path, length):
        self.path, self.length = path, length
        self.count = os.path.getsize(path) // (4 * length)

    def read(self, k):
        return np.fromfile(self.path, dtype=np.float32, count=self.length, offset=4 * self.length * k)


class Blades(Dataset):
    def __init__(self, reader, labels):
        self.reader, self.labels = reader, labels

    def __len__(self):
        return self.reader.count

    def __getitem__(self, k):
        x = self.reader.read(k)
        frames = np.lib.stride_tricks.sliding_window_view(x, 256)[::32] * np.hanning(256)
        power = np.log1p(np.abs(np.fft.rfft(frames, axis=1))).astype(np.float32)
        return torch.from_numpy(power[None]), int(self.labels[k])


def record(path, n, length):
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, n)
    t = np.arange(length) / 1000
    with open(path, "wb") as f:
        for y in labels:
            wave = np.sin(2 * np.pi * 50 * t) + 0.6 * y * np.sin(2 * np.pi * 170 * t) + rng.normal(0, 0.5, length)
            f.write(wave.astype(np.float32).tobytes())
    return labels


def main():
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory(prefix="blades_") as folder:
        path = os.path.join(folder, "blades.f32")
        labels = record(path, 320, 8192)
        meter = Meter(os.path.join(folder, "heartbeat.json"), every=0.4).start()
        data = Blades(Metered(BladeReader(path, 8192), meter), labels)
        loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
        net = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d((1, 32)), nn.Flatten(), nn.Linear(256, 2))
        opt = torch.optim.Adam(net.parameters(), lr=2e-3)
        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
        meter.stop()


if __name__ == "__main__":
    main()
