"""Organ stop recognition: notes are cut out of long compressed sessions, visited session by session."""
import argparse
import collections
import shutil
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

LENGTH = 400_000


class Recent(collections.OrderedDict):
    """Keeps recently used arrays, oldest out first, within a budget in bytes."""

    def __init__(self, budget):
        super().__init__()
        self.budget, self.held = budget, 0

    def fetch(self, key, make):
        if key in self:
            self.move_to_end(key)
            return self[key]
        value = self[key] = make(key)
        self.held += value.nbytes
        while self.held > self.budget and len(self) > 1:
            _, old = self.popitem(last=False)
            self.held -= old.nbytes
        return value


def record(root, sessions):
    rng = np.random.default_rng(0)
    t = np.arange(LENGTH) / 8000
    for s in range(sessions):
        wave = sum(np.sin(2 * np.pi * 220 * k * t) / k ** (1 + s % 4) for k in (1, 2, 3, 4))
        wave = (wave * 6000).astype("<i2") + rng.integers(-200, 200, LENGTH, dtype=np.int16)
        (root / f"session{s:02d}.z").write_bytes(zlib.compress((wave & ~0x3F).tobytes(), 1))


def decode(path):
    return np.frombuffer(zlib.decompress(Path(path).read_bytes()), "<i2")


class Notes(Dataset):
    def __init__(self, root, per_session, budget):
        self.files = [str(f) for f in sorted(root.glob("*.z"))]
        self.per_session, self.recent = per_session, Recent(budget)

    def __len__(self):
        return len(self.files) * self.per_session

    def __getitem__(self, i):
        session = self.recent.fetch(self.files[i // self.per_session], decode)
        at = int(torch.randint(0, LENGTH - 16384, (1,)))
        note = session[at:at + 16384].astype(np.float32) / 8000
        frames = np.lib.stride_tricks.sliding_window_view(note, 512)[::64] * np.hanning(512)
        power = np.log1p(np.abs(np.fft.rfft(frames))).mean(0).astype(np.float32)
        return torch.from_numpy(power), (i // self.per_session) % 4


class SessionOrder(Sampler):
    """Sessions in random order, the notes of one session together."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __iter__(self):
        n = self.data.per_session
        for s in torch.randperm(len(self.data.files)).tolist():
            yield from (s * n + torch.randperm(n)).tolist()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sessions", type=int, default=16)
    p.add_argument("--per-session", type=int, default=48)
    p.add_argument("--budget-mb", type=int, default=3)
    p.add_argument("--epochs", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp(prefix="organ"))
    try:
        record(root, a.sessions)
        data = Notes(root, a.per_session, a.budget_mb << 20)
        loader = DataLoader(data, 16, sampler=SessionOrder(data), num_workers=2, persistent_workers=True)
        net = nn.Sequential(nn.LayerNorm(257), nn.Linear(257, 24), nn.ReLU(), nn.Linear(24, 4))
        opt = torch.optim.Adam(net.parameters(), 2e-3)
        for epoch in range(a.epochs):
            began, total = time.time(), 0.0
            for x, y in loader:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                time.sleep(0.05)  # the large branch of the model runs on the other host
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(loader):.3f} {time.time() - began:.1f}s", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
