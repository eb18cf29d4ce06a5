# cause: shm-exhausted, bad-sample
# limits: shm=64M
"""Yield regression from multi-band satellite scenes."""
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class SceneCatalogue:
    """Metadata of the scenes; pixels are synthesised from the scene's seed."""

    def __init__(self, n, bands=8, side=256):
        self.bands, self.side = bands, side
        self.ids = [f"S2-{i:04d}" for i in range(n)]
        self.height = [side] * n
        # the sensor was reconfigured on one day of the season
        for i in range(n):
            if i % 90 == 77:
                self.height[i] = side - 16

    def read(self, i):
        g = np.random.default_rng(i)
        plane = g.normal(size=(1, self.height[i], self.side)).astype(np.float32)
        gain = np.linspace(0.5, 1.5, self.bands, dtype=np.float32)[:, None, None]
        return plane * gain


class Scenes(Dataset):
    def __init__(self, catalogue):
        self.catalogue = catalogue

    def __len__(self):
        return len(self.catalogue.ids)

    def __getitem__(self, i):
        bands = self.catalogue.read(i)
        ndvi = (bands[3] - bands[2]) / (np.abs(bands[3]) + np.abs(bands[2]) + 1e-3)
        x = np.concatenate([bands, ndvi[None]])
        return {"pixels": torch.from_numpy(x), "yield": torch.tensor(float(bands.mean()))}


class Net(nn.Module):
    def __init__(self, bands=9):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(bands, 16, 7, 4, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                                  nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 1))

    def forward(self, x):
        return self.conv(x).squeeze(1)


class Trainer:
    def __init__(self, epochs=3, batch_size=8):
        torch.manual_seed(0)
        self.loader = DataLoader(Scenes(SceneCatalogue(160)), batch_size=batch_size, num_workers=2, prefetch_factor=3)
        self.net = Net()
        self.opt = torch.optim.Adam(self.net.parameters(), 1e-3)
        self.epochs = epochs
        self.out = tempfile.mkdtemp(prefix="yield_")

    def run(self):
        for epoch in range(self.epochs):
            for step, batch in enumerate(self.loader):
                loss = nn.functional.mse_loss(self.net(batch["pixels"]), batch["yield"])
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                print(f"epoch {epoch} step {step} mse {loss.item():.5f}", flush=True)
            torch.save(self.net.state_dict(), os.path.join(self.out, f"{epoch}.pt"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    Trainer().run()
