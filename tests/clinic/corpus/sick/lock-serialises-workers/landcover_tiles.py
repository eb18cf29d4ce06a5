# cause: lock-serialises-workers
"""Land-cover classification of satellite tiles, with an access journal that the data provider requires."""
import contextlib
import fcntl
import functools
import json
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

TILE = 48
CLASSES = ["water", "forest", "crop", "urban", "bare"]


class Journal:
    def __init__(self, path):
        self.path = path

    @contextlib.contextmanager
    def entry(self, **what):
        with open(self.path, "a") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            began = time.time()
            yield
            stream.write(json.dumps({**what, "ms": round(1000 * (time.time() - began), 1)}) + "\n")


def journaled(method):
    @functools.wraps(method)
    def wrapper(self, tile):
        with self.journal.entry(tile=int(tile), action=method.__name__):
            return method(self, tile)
    return wrapper


class TileServer:
    """Windowed reads of a mosaic. The range request of a tile costs about 12 ms on the provider's side."""

    def __init__(self, tiles, journal, seed=21):
        rng = np.random.default_rng(seed)
        self.label = rng.integers(0, len(CLASSES), tiles)
        self.seed = seed
        self.journal = journal

    @journaled
    def window(self, tile):
        time.sleep(0.012)
        rng = np.random.default_rng((self.seed, tile))
        kind = self.label[tile]
        yy, xx = np.mgrid[:TILE, :TILE].astype(np.float32)
        base = np.stack([np.sin(xx / (2 + kind)), np.cos(yy / (3 + kind)), (xx + yy) / (60 + 20 * kind), np.full_like(xx, kind / 9)])
        return (base + rng.normal(0, 0.6, base.shape)).astype(np.float32)


class Tiles(Dataset):
    def __init__(self, server, augment=None):
        self.server, self.augment = server, augment

    def __len__(self):
        return len(self.server.label)

    def __getitem__(self, i):
        bands = self.server.window(i)
        ndvi = (bands[3] - bands[0]) / (np.abs(bands[3]) + np.abs(bands[0]) + 1e-3)
        x = torch.from_numpy(np.concatenate([bands, ndvi[None]]).astype(np.float32))
        if self.augment is not None:
            x = self.augment(x)
        return x, int(self.server.label[i])


class RandomTurn:
    def __call__(self, x):
        return torch.rot90(x, int(torch.randint(4, ())), (1, 2))


def network():
    return nn.Sequential(
        nn.Conv2d(5, 12, 3, stride=2), nn.BatchNorm2d(12), nn.ReLU(),
        nn.Conv2d(12, 20, 3, stride=2), nn.BatchNorm2d(20), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(80, len(CLASSES)))


def epoch_pass(net, loader, optimiser=None):
    net.train(optimiser is not None)
    hits = total = 0
    for x, y in loader:
        with torch.set_grad_enabled(optimiser is not None):
            scores = net(x)
            loss = nn.functional.cross_entropy(scores, y)
        if optimiser is not None:
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        hits += (scores.argmax(1) == y).sum().item()
        total += len(y)
    return hits / total


def main(tiles=360, epochs=3, workers=4):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="landcover-") as folder:
        server = TileServer(tiles, Journal(os.path.join(folder, "access.jsonl")))
        order = torch.randperm(tiles).tolist()
        held = tiles // 6
        options = dict(batch_size=16, num_workers=workers, persistent_workers=True)
        train = DataLoader(Subset(Tiles(server, RandomTurn()), order[held:]), shuffle=True, **options)
        valid = DataLoader(Subset(Tiles(server), order[:held]), **options)
        net = network()
        optimiser = torch.optim.Adam(net.parameters(), lr=2e-3)
        for epoch in range(epochs):
            begin = time.time()
            fit, check = epoch_pass(net, train, optimiser), epoch_pass(net, valid)
            print(f"epoch {epoch} train {fit:.3f} valid {check:.3f} seconds {time.time() - begin:.2f}", flush=True)
        with open(server.journal.path) as stream:
            print("journal entries:", sum(1 for _ in stream))


if __name__ == "__main__":
    main()
