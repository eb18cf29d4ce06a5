# cause: straggler-samples
# also: storage-bound
"""Crop yield from multispectral scenes; recent scenes are on disk, a few old ones must come back from the archive tier."""
from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset, Subset


class SceneStore:
    """Two tiers: 'hot' answers in milliseconds, 'cold' needs a recall."""

    recall_seconds = 1.3
    hot_seconds = 0.005

    def __init__(self, folder: Path, cold: np.ndarray):
        self.folder, self.cold = folder, cold

    @classmethod
    def create(cls, folder: Path, scenes: int, seed: int) -> "SceneStore":
        rng = np.random.default_rng(seed)
        cold = np.zeros(scenes, dtype=bool)
        cold[rng.choice(scenes, scenes // 100, replace=False)] = True
        for number in range(scenes):
            greenness = rng.uniform(0.1, 0.9)
            bands = rng.normal([0.1, 0.2, 0.2, 0.2 + greenness], 0.05, (32, 32, 4)).astype(np.float16)
            with open(folder / f"{number:05d}.npy", "wb") as target:
                np.save(target, bands)
        return cls(folder, cold)

    def read(self, number: int) -> np.ndarray:
        time.sleep(self.recall_seconds if self.cold[number] else self.hot_seconds)
        return np.load(self.folder / f"{number:05d}.npy")


class VegetationIndices:
    def __call__(self, bands: np.ndarray) -> np.ndarray:
        blue, green, red, infrared = np.moveaxis(bands, -1, 0)
        ndvi = (infrared - red) / (infrared + red + 1e-3)
        evi = 2.5 * (infrared - red) / (infrared + 6 * red - 7.5 * blue + 1.5)
        return np.stack([red, green, infrared, ndvi, evi.clip(-1, 2)])


class YieldScenes(Dataset):
    def __init__(self, store: SceneStore, transform):
        self.store, self.transform = store, transform

    def __len__(self) -> int:
        return len(self.store.cold)

    def __getitem__(self, number: int):
        bands = self.store.read(number).astype(np.float32)
        features = self.transform(bands)
        tonnes = 2.0 + 6.0 * float(features[3].mean())
        return torch.from_numpy(features), torch.tensor([tonnes])


class YieldNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(5, 12, 3, stride=2), nn.ReLU(), nn.Conv2d(12, 12, 3, stride=2), nn.ReLU())
        self.out = nn.Linear(12, 1)

    def forward(self, x):
        return self.out(self.conv(x).mean((2, 3)))


class Trainer:
    def __init__(self, scenes: Dataset, epochs=2, batch=8, workers=4):
        order = torch.randperm(len(scenes)).tolist()
        cut = len(order) - 64
        self.epochs = epochs
        self.loader = DataLoader(Subset(scenes, order[:cut]), batch_size=batch, shuffle=True, num_workers=workers,
                                 persistent_workers=True, drop_last=True)
        hot = [i for i in order[cut:] if not scenes.store.cold[i]]
        self.holdout = DataLoader(Subset(scenes, hot), batch_size=batch)
        self.net = YieldNet()
        self.optimizer = optim.Adam(self.net.parameters(), lr=4e-3)

    def epoch(self) -> tuple[float, float]:
        begin, losses = time.monotonic(), []
        for features, tonnes in self.loader:
            loss = nn.functional.huber_loss(self.net(features), tonnes)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return sum(losses) / len(losses), len(losses) * self.loader.batch_size / (time.monotonic() - begin)

    def holdout_error(self) -> float:
        with torch.no_grad():
            errors = [(self.net(x) - y).abs() for x, y in self.holdout]
        return torch.cat(errors).mean().item()

    def fit(self) -> None:
        for number in range(self.epochs):
            loss, rate = self.epoch()
            print(f"[{number}] loss={loss:.3f} {rate:.1f} scenes/s", flush=True)
        print(f"holdout error {self.holdout_error():.3f} t/ha")


if __name__ == "__main__":
    torch.manual_seed(21)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="scenes-") as folder:
        store = SceneStore.create(Path(folder), scenes=1100, seed=21)
        Trainer(YieldScenes(store, VegetationIndices())).fit()
