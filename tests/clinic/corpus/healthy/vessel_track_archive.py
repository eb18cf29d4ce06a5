"""Vessel type from AIS tracks in a zip archive, with a background statistics thread beside the training."""
import io
import os
import tempfile
import threading
import time
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class TrackArchive:
    def __init__(self, path):
        self.path = path
        self._owner = None
        self._zip = None

    def _handle(self):
        if self._owner != os.getpid():
            self._zip = zipfile.ZipFile(self.path)
            self._owner = os.getpid()
        return self._zip

    def names(self):
        return self._handle().namelist()

    def track(self, name):
        return np.load(io.BytesIO(self._handle().read(name)))


class Tally:
    """Counts shared by threads; a forked child starts with a lock of its own."""

    def __init__(self):
        self._fresh()
        os.register_at_fork(after_in_child=self._fresh)

    def _fresh(self):
        self._lock = threading.Lock()
        self.counts = Counter()

    def add(self, key, n=1):
        with self._lock:
            self.counts[key] += n

    def snapshot(self):
        with self._lock:
            time.sleep(0.2)  # let late writers queue up, then read one consistent view
            return dict(self.counts)


TALLY = Tally()


class Reporter(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.last = {}

    def run(self):
        while not self.stop.wait(1.0):
            self.last = TALLY.snapshot()


class Tracks(Dataset):
    def __init__(self, archive):
        self.archive = archive
        self.names = archive.names()

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        TALLY.add("tracks")
        t = self.archive.track(self.names[i])
        v = np.diff(t, axis=0, prepend=t[:1])
        return torch.from_numpy(np.concatenate([t - t[0], v], 1).T.astype(np.float32)), int(self.names[i][0])


def write_tracks(path, n):
    rng = np.random.default_rng(1)

    def make(seed_k):
        s, k = seed_k
        r = np.random.default_rng(s)
        buf = io.BytesIO()
        np.save(buf, np.cumsum(r.normal(0.1 * k, 1, (256, 2)), axis=0))
        return buf.getvalue()

    with ThreadPoolExecutor(2) as pool, zipfile.ZipFile(path, "w") as z:
        kinds = rng.integers(0, 4, n).tolist()
        for i, blob in enumerate(pool.map(make, enumerate(kinds))):
            z.writestr(f"{kinds[i]}_{i:05d}.npy", blob)


class TrackNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(4, width, 9, padding=4), nn.ReLU(),
                                 nn.Conv1d(width, width, 9, padding=4), nn.ReLU(),
                                 nn.Conv1d(width, width, 9, padding=4), nn.ReLU(),
                                 nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, 4))

    def forward(self, x):
        return self.net(x)


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "tracks.zip")
        write_tracks(path, 900)
        ds = Tracks(TrackArchive(path))
        print("first track", tuple(ds[0][0].shape))
        reporter = Reporter()
        reporter.start()
        train = DataLoader(Subset(ds, range(800)), 32, shuffle=True, num_workers=1, persistent_workers=True)
        val = DataLoader(Subset(ds, range(800, 900)), 50, num_workers=1, persistent_workers=True)
        net = TrackNet()
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        for epoch in range(4):
            for x, y in train:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                TALLY.add("steps")
            with torch.no_grad():
                acc = np.mean([(net(x).argmax(1) == y).float().mean().item() for x, y in val])
            print(f"epoch {epoch} loss {loss.item():.3f} val {acc:.3f} seen {reporter.last}", flush=True)
        reporter.stop.set()
        reporter.join()


if __name__ == "__main__":
    main()
