# cause: too-few-workers
# also: storage-bound
"""Downscaling of coarse weather tiles to station temperature; tiles come out of a tile archive."""
import logging
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("downscale")

SETTINGS = {
    "seasons": ("djf", "mam", "jja", "son"),
    "tiles_per_season": 60,
    "side": 32,
    "channels": 4,
    "batch": 16,
    "epochs": 3,
    "lr": 3e-3,
    "round_trip": 0.02,
}


class TileArchive:
    """Stand-in for the archive's object store: every request costs one round trip."""

    def __init__(self, season, settings):
        self.number = settings["seasons"].index(season)
        self.shape = (settings["channels"], settings["side"], settings["side"])
        self.round_trip = settings["round_trip"]

    def get(self, tile):
        time.sleep(self.round_trip)
        rng = np.random.default_rng((self.number, tile))
        field = rng.standard_normal(self.shape, dtype=np.float32)
        return np.cumsum(field, axis=-1) * 0.2 + 4.0 * self.number


class SeasonTiles(Dataset):
    def __init__(self, season, tiles, settings):
        self.archive = TileArchive(season, settings)
        self.tiles = np.asarray(tiles)

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, index):
        field = self.archive.get(int(self.tiles[index]))
        mean = field.mean(axis=(1, 2), keepdims=True)
        scaled = (field - mean) / (field.std(axis=(1, 2), keepdims=True) + 1e-3)
        temperature = mean.mean() + 0.5 * scaled[0, 12:20, 12:20].mean()
        return torch.from_numpy(scaled), torch.from_numpy(mean[:, 0, 0]), torch.tensor(temperature, dtype=torch.float32)


class Downscaler(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(channels, 12, 3, stride=2, padding=1), nn.GELU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.GELU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )
        self.head = nn.Linear(24 * 4 + channels, 1)

    def forward(self, tile, mean):
        return self.head(torch.cat([self.encoder(tile), mean], 1)).squeeze(1)


def usable_workers():
    """One for us, the rest for the data."""
    return max(1, len(os.sched_getaffinity(0)) - 1) if hasattr(os, "sched_getaffinity") else max(1, (os.cpu_count() or 2) - 1)


def make_loader(tiles, settings, train):
    parts = [SeasonTiles(season, tiles, settings) for season in settings["seasons"]]
    return DataLoader(
        ConcatDataset(parts),
        batch_size=settings["batch"],
        shuffle=train,
        drop_last=train,
        num_workers=usable_workers(),
        persistent_workers=True,
    )


def evaluate(model, loader):
    model.eval()
    error, count = 0.0, 0
    with torch.inference_mode():
        for tile, mean, temperature in loader:
            error += (model(tile, mean) - temperature).abs().sum().item()
            count += len(temperature)
    model.train()
    return error / count


def train(settings):
    per_season = settings["tiles_per_season"]
    held_out = per_season // 10
    train_loader = make_loader(range(held_out, per_season), settings, train=True)
    val_loader = make_loader(range(held_out), settings, train=False)
    model = Downscaler(settings["channels"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings["lr"])
    for epoch in range(settings["epochs"]):
        begin, seen = time.monotonic(), 0
        for tile, mean, temperature in train_loader:
            loss = nn.functional.huber_loss(model(tile, mean), temperature)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            seen += len(tile)
        mae = evaluate(model, val_loader)
        log.info("epoch %d loss %.3f mae %.3f  %.0f tiles/s", epoch, loss.item(), mae, seen / (time.monotonic() - begin))
    return model


if __name__ == "__main__":
    torch.manual_seed(20)
    torch.set_num_threads(1)
    train(SETTINGS)
