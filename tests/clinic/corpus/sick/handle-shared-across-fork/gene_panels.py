# cause: handle-shared-across-fork
# also: rng-repeated
"""Denoising autoencoder on expression panels stored row by row in a flat binary file."""
import os
import pathlib
import shutil
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GENES = 3000


class FlatTable:
    def __init__(self, path, columns, dtype="<f4"):
        self.columns, self.dtype = columns, np.dtype(dtype)
        self.rows = os.path.getsize(path) // (columns * self.dtype.itemsize)
        self.handle = open(path, "rb")

    def row(self, i):
        self.handle.seek(i * self.columns * self.dtype.itemsize)
        return np.fromfile(self.handle, dtype=self.dtype, count=self.columns)


class Dropout:
    """Masks a random part of the panel."""

    def __init__(self, p, seed):
        self.p = p
        self.rng = np.random.default_rng(seed)

    def __call__(self, x):
        return np.where(self.rng.random(x.shape) < self.p, 0, x).astype(np.float32)


class Panels(Dataset):
    def __init__(self, table, corrupt):
        self.sources = {"expression": table}
        self.corrupt = corrupt

    def __len__(self):
        return self.sources["expression"].rows

    def __getitem__(self, i):
        x = np.log1p(self.sources["expression"].row(i))
        time.sleep(0.001)
        return torch.from_numpy(self.corrupt(x)), torch.from_numpy(x)


def build(path, n):
    rng = np.random.default_rng(0)
    programs = rng.gamma(1.0, 1.0, (12, GENES))
    with open(path, "wb") as f:
        for _ in range(n):
            f.write(rng.poisson(rng.dirichlet(np.ones(12)) @ programs * 5).astype("<f4").tobytes())


def model(width=48):
    return nn.Sequential(nn.Linear(GENES, width), nn.ReLU(), nn.Linear(width, GENES))


def save(folder, net, epoch):
    torch.save({"epoch": epoch, "state": net.state_dict()}, folder / "last.pt")


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="panels"))
    try:
        path = folder / "panels.f4"
        build(path, 900)
        data = Panels(FlatTable(path, GENES), Dropout(0.3, seed=17))
        net = model()
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        loader = DataLoader(data, batch_size=20, shuffle=True, num_workers=4, persistent_workers=True, drop_last=True)
        for epoch in range(3):
            t, total = time.time(), 0.0
            for noisy, clean in loader:
                loss = nn.functional.mse_loss(net(noisy), clean)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            save(folder, net, epoch)
            print(f"epoch {epoch} mse {total / len(loader):.4f} ({time.time() - t:.1f}s)", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
