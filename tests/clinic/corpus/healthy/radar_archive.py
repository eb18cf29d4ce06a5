"""Rain / no rain segmentation of weather radar tiles read from a network mount."""
import multiprocessing as mp
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LATENCY = 0.006


class Meter:
    def __init__(self):
        self.lock = mp.Lock()
        self.bytes = mp.Value("q", 0, lock=False)

    def add(self, n):
        with self.lock:
            self.bytes.value += n


class RadarTiles(Dataset):
    def __init__(self, files, meter):
        self.files, self.meter = files, meter

    def __len__(self):
        return len(self.files)

    def read(self, path):
        time.sleep(LATENCY)         # round trip of the mount
        blob = path.read_bytes()
        self.meter.add(len(blob))
        return blob

    def __getitem__(self, i):
        dbz = np.frombuffer(self.read(self.files[i]), np.uint8).reshape(64, 64).astype(np.float32) / 4
        rain = (200.0 ** -1 * 10 ** (dbz / 10)) ** (1 / 1.6)
        return torch.from_numpy(np.log1p(rain))[None], torch.from_numpy((dbz > 30).astype(np.float32))[None]


class Net(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1), nn.ReLU())
        self.dec = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        return self.dec(self.enc(x))


def generate(root, n):
    rng = np.random.default_rng(2)
    for k in range(n):
        rng.integers(0, 220, (64, 64), dtype=np.uint8).tofile(root / f"{k:04d}.dbz")
    return sorted(root.iterdir())


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        files, meter = generate(Path(tmp), 640), Meter()
        train = DataLoader(RadarTiles(files[:560], meter), 16, shuffle=True, num_workers=4, persistent_workers=True)
        val = DataLoader(RadarTiles(files[560:], meter), 16, num_workers=2, persistent_workers=True)
        net, crit = Net(), nn.BCEWithLogitsLoss()
        opt = torch.optim.Adam(net.parameters(), 3e-3)
        for epoch in range(3):
            for x, y in train:
                loss = crit(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            with torch.no_grad():
                hit = np.mean([((net(x) > 0) == (y > 0)).float().mean().item() for x, y in val])
            print(f"epoch {epoch} loss {loss.item():.3f} pixel acc {hit:.3f} read {meter.bytes.value / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
