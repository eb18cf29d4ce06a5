# limits: memory=1G
"""Gait phase from inertial sensors; windows resampled per epoch through a sampler that knows the epoch."""
import pathlib
import shutil
import tempfile
import time
from collections import OrderedDict

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

WINDOW, CHANNELS, PHASES = 128, 6, 4


class EpochSampler(Sampler):
    def __init__(self, n, draws, seed=0):
        self.n, self.draws, self.seed, self.epoch = n, draws, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.draws

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed * 1000 + self.epoch)
        return iter(torch.randperm(self.n, generator=g)[:self.draws].tolist())


class Recent:
    """Keeps the last few recordings."""

    def __init__(self, size):
        self.size, self.items = size, OrderedDict()

    def get(self, path):
        if path not in self.items:
            self.items[path] = np.load(path)
            if len(self.items) > self.size:
                self.items.popitem(last=False)
        self.items.move_to_end(path)
        return self.items[path]


class Gait(Dataset):
    def __init__(self, root, per_file):
        self.files = sorted(root.glob("*.npy"))
        self.per_file = per_file
        self.recent = Recent(4)

    def __len__(self):
        return len(self.files) * self.per_file

    def __getitem__(self, i):
        rec = self.recent.get(self.files[i // self.per_file])
        s = (i % self.per_file) * 16
        time.sleep(0.002)  # sensor gateway
        w = np.array(rec[s:s + WINDOW, :CHANNELS], dtype=np.float32)
        return torch.from_numpy(w).t().contiguous(), int(rec[s + WINDOW // 2, CHANNELS])


def walk(root, n, per_file):
    t = np.arange(per_file * 16 + WINDOW)
    for i in range(n):
        rng = np.random.default_rng(i)
        phase = (t / (40 + i)) % 1
        x = np.stack([np.sin(2 * np.pi * (phase + c / 6)) + rng.normal(0, 0.1, t.size) for c in range(CHANNELS)] + [np.floor(phase * PHASES)], 1)
        np.save(root / f"walk{i:02d}.npy", x.astype(np.float32))


class PhaseNet(nn.Module):
    def __init__(self, c=96):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(CHANNELS, c, 7, padding=3), nn.ReLU(), nn.Conv1d(c, c, 7, padding=3), nn.ReLU(), nn.Conv1d(c, c, 7, padding=3),
                                 nn.ReLU(), nn.Flatten(), nn.Linear(c * WINDOW, PHASES))

    def forward(self, x):
        return self.net(x)


def main(root):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    walk(root, 10, 120)
    data = Gait(root, 120)
    sampler = EpochSampler(len(data), 320)
    loader = DataLoader(data, 16, sampler=sampler, num_workers=2, persistent_workers=True)
    net = PhaseNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        start = mark = time.time()
        waited = 0.0
        for x, y in loader:
            waited += time.time() - mark
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            mark = time.time()
        print(f"epoch {epoch} loss {loss.item():.3f} {time.time() - start:.1f}s data {waited:.1f}s", flush=True)


if __name__ == "__main__":
    root = pathlib.Path(tempfile.mkdtemp(prefix="gait"))
    try:
        main(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
