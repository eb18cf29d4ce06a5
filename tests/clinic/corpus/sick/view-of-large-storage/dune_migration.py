# cause: view-of-large-storage
# also: shm-exhausted
# limits: shm=64M
"""Streaming regression of dune displacement from desert surveys: one survey is decoded, cut up and fed as ready-made batches."""
import glob
import os
import tempfile
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

TILE = 24
ROWS = 36


def write_surveys(folder, n, seed=21):
    rng = np.random.default_rng(seed)
    for k in range(n):
        base = rng.normal(0, 1, (96, 96)).cumsum(0).cumsum(1).astype(np.float32)
        base = np.round((base - base.mean()) / base.std(), 2).astype(np.float16)
        with open(os.path.join(folder, f"survey_{k:03d}.z"), "wb") as f:
            f.write(zlib.compress(base.tobytes(), 3))


def decode(path):
    with open(path, "rb") as f:
        small = np.frombuffer(zlib.decompress(f.read()), dtype=np.float16).reshape(96, 96).astype(np.float32)
    return torch.nn.functional.interpolate(torch.from_numpy(small)[None, None], size=(864, 864), mode="bilinear", align_corners=False)[0, 0]


class Surveys(IterableDataset):
    """Yields (tiles, displacement) with the batch dimension already there."""

    def __init__(self, folder, per_batch, winds=4):
        self.paths = sorted(glob.glob(os.path.join(folder, "*.z")))
        self.per_batch, self.winds = per_batch, winds

    def layers(self, height):
        gy, gx = torch.gradient(height)
        out = [height, gx, gy, torch.sqrt(gx * gx + gy * gy + 1e-6)]
        for k in range(self.winds):
            a = torch.tensor(k * 3.14159 / self.winds)
            out.append(gx * a.cos() + gy * a.sin())
        return torch.stack(out)

    def tiles(self, path):
        cube = self.layers(decode(path))
        c = cube.shape[0]
        t = cube.view(c, ROWS, TILE, ROWS, TILE).permute(1, 3, 0, 2, 4).reshape(ROWS * ROWS, c, TILE, TILE)
        return t[torch.randperm(len(t))]

    def __iter__(self):
        info = get_worker_info()
        mine = self.paths if info is None else self.paths[info.id::info.num_workers]
        for path in mine:
            tiles = self.tiles(path)
            for part in tiles[: 3 * self.per_batch].split(self.per_batch):
                yield part, part[:, 4].mean((1, 2))


class Head(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(channels, 16, 3), nn.SiLU(), nn.Conv2d(16, 16, 3, 2), nn.SiLU(),
                                 nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def fit(loader, net, epochs):
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(epochs):
        total = n = 0
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            total += loss.item() * len(x)
            n += len(x)
            if n % 160 == 0:
                print(f"epoch {epoch} seen {n} loss {total / n:.4f}", flush=True)
        print(f"epoch {epoch}: {n} tiles, loss {total / n:.4f}", flush=True)


def main():
    torch.manual_seed(4)
    with tempfile.TemporaryDirectory(prefix="dunes_") as folder:
        write_surveys(folder, 40)
        loader = DataLoader(Surveys(folder, per_batch=16), batch_size=None, num_workers=2, persistent_workers=True)
        fit(loader, Head(8), epochs=2)


if __name__ == "__main__":
    main()
