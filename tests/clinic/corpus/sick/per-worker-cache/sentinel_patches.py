# cause: per-worker-cache
"""Crop-type mapping: random patches out of multi-band scenes stored deflated on disk."""
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BANDS, SIDE, PATCH = 10, 640, 48


def write_scenes(folder: Path, n):
    rng = np.random.default_rng(0)
    for k in range(n):
        coarse = rng.normal(0, 1, (BANDS, SIDE // 32, SIDE // 32)).astype(np.float32)
        scene = np.repeat(np.repeat(coarse, 32, 1), 32, 2)
        (folder / f"scene{k:02d}.zz").write_bytes(zlib.compress(scene.tobytes(), 1))


class SceneStore:
    def __init__(self, folder):
        self.files = sorted(folder.glob("*.zz"))
        self.opened = {}

    def __getitem__(self, k):
        if k not in self.opened:
            raw = zlib.decompress(self.files[k].read_bytes())
            self.opened[k] = np.frombuffer(raw, np.float32).reshape(BANDS, SIDE, SIDE)
        return self.opened[k]


class PatchDataset(Dataset):
    def __init__(self, store, patches):
        rng = np.random.default_rng(1)
        self.store = store
        self.where = np.stack([rng.integers(0, len(store.files), patches), *rng.integers(0, SIDE - PATCH, (2, patches))], 1)

    def __len__(self):
        return len(self.where)

    def __getitem__(self, i):
        k, y, x = self.where[i]
        p = self.store[k][:, y:y + PATCH, x:x + PATCH].copy()
        f = np.fft.fft2(p)
        p = np.real(np.fft.ifft2(f * np.exp(-np.abs(np.fft.fftfreq(PATCH))[None, :, None] * 3))).astype(np.float32)
        return torch.from_numpy(p), int(p.mean(axis=(1, 2)).argmax())


class Mapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(BANDS, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.ReLU())
        self.h = nn.Linear(16, BANDS)

    def forward(self, x):
        return self.h(self.f(x).mean((2, 3)))


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        write_scenes(root, 24)
        loader = DataLoader(PatchDataset(SceneStore(root), 2400), batch_size=32, shuffle=True, num_workers=3, persistent_workers=True)
        net = Mapper()
        opt = torch.optim.AdamW(net.parameters(), 2e-3)
        for epoch in range(3):
            hit = n = 0
            for x, y in loader:
                logit = net(x)
                loss = nn.functional.cross_entropy(logit, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                hit, n = hit + (logit.argmax(1) == y).sum().item(), n + len(y)
            print(f"epoch {epoch} acc {hit / n:.3f}", flush=True)


if __name__ == "__main__":
    main()
