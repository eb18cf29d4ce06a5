# cause: unpicklable-dataset
"""Sleep staging from single-channel EEG. Usage: python sleep_stages.py [nights]"""
import functools
import sys
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset

FS, EPOCH = 100, 30
STAGES = ["W", "N1", "N2", "N3", "REM"]


class LRU:
    """Small keyed cache, also used by the annotation GUI from its own thread."""

    def __init__(self, slots):
        self.slots = slots
        self.data = OrderedDict()
        self.guard = threading.RLock()

    def fetch(self, key, make):
        with self.guard:
            if key not in self.data:
                self.data[key] = make()
                if len(self.data) > self.slots:
                    self.data.popitem(last=False)
            self.data.move_to_end(key)
            return self.data[key]


class Night:
    def __init__(self, path):
        self.path = path
        self.hypnogram = np.load(path.with_suffix(".stages.npy"))

    def signal(self):
        return np.load(self.path).astype(np.float32)


class SleepRecords:
    def __init__(self, root):
        self.nights = [Night(p) for p in sorted(root.glob("*.eeg.npy"))]
        self.cache = LRU(slots=2)

    def epoch(self, night, k):
        sig = self.cache.fetch(night, self.nights[night].signal)
        return sig[k * FS * EPOCH:(k + 1) * FS * EPOCH]


class Staging(Dataset):
    def __init__(self, records):
        self.records = records
        self.table = [(n, k) for n, night in enumerate(records.nights) for k in range(len(night.hypnogram))]

    def __len__(self):
        return len(self.table)

    def __getitem__(self, i):
        n, k = self.table[i]
        x = self.records.epoch(n, k)
        spec = np.abs(np.fft.rfft(x.reshape(-1, 300) * np.hanning(300), axis=1))[:, :64]
        return torch.from_numpy(np.log1p(spec).astype(np.float32)), int(self.records.nights[n].hypnogram[k])


def simulate(root, nights):
    rng = np.random.default_rng(8)
    t = np.arange(FS * EPOCH) / FS
    for n in range(nights):
        stages = np.repeat(rng.integers(0, len(STAGES), 60), 4)
        eeg = np.concatenate([np.sin(2 * np.pi * [10, 6, 13, 1.5, 4][s] * t) * 20 + rng.normal(0, 12, t.size)
                              for s in stages])
        path = root / f"night{n:02d}.eeg.npy"
        np.save(path, eeg.astype(np.float16))
        np.save(path.with_suffix(".stages.npy"), stages)


class Stager(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(64, 24, batch_first=True)
        self.out = nn.Linear(24, len(STAGES))

    def forward(self, x):
        return self.out(self.gru(x)[0].mean(1))


def fit(loader, epochs=3):
    net = Stager()
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    for e in range(epochs):
        hits = 0
        for x, y in loader:
            out = net(x)
            opt.zero_grad()
            nn.functional.cross_entropy(out, y).backward()
            opt.step()
            hits += int((out.argmax(1) == y).sum())
        print(f"epoch {e}: accuracy {hits / len(loader.dataset):.3f}", flush=True)


def main(nights=8):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    mp.set_start_method("spawn")
    with tempfile.TemporaryDirectory() as tmp:
        simulate(Path(tmp), nights)
        make = functools.partial(DataLoader, num_workers=2, persistent_workers=True)
        fit(make(Staging(SleepRecords(Path(tmp))), batch_size=32))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
