# cause: nested-workers
"""Vessel type from sherd profiles. Profiles that were computed once are shared between all who need them."""
import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TYPES = ["amphora", "bowl", "jug"]


class SharedTable:
    """A dictionary that several processes can read and write. Made when it is first used."""

    def __init__(self):
        self._table = None

    @property
    def table(self):
        if self._table is None:
            self._manager = multiprocessing.Manager()
            self._table = self._manager.dict()
        return self._table

    def get_or(self, key, compute):
        found = self.table.get(key)
        if found is None:
            found = self.table[key] = compute()
        return found


def trace(mask):
    """Radius of the vessel for every row of the mask."""
    radius = np.zeros(mask.shape[0], np.float32)
    for r, row in enumerate(mask):
        on = np.flatnonzero(row)
        radius[r] = on[-1] - on[0] if len(on) else 0
    return np.convolve(radius, np.ones(5) / 5, "same").astype(np.float32)


class Profiles:
    """Reads masks and gives profiles; those that are asked for often cost only once."""

    def __init__(self, folder: Path, long_profiles=90):
        self.folder, self.long_profiles = folder, long_profiles
        self.known = SharedTable()

    def __getitem__(self, name):
        mask = np.unpackbits(np.load(self.folder / f"{name}.npy"), axis=1)
        time.sleep(0.003)
        height = int(mask.any(1).sum())
        if height > self.long_profiles:  # tall pieces take a while
            return self.known.get_or(name, lambda: trace(mask))
        return trace(mask)


class Sherds(Dataset):
    def __init__(self, folder: Path):
        self.names = sorted(p.stem for p in folder.glob("*.npy"))
        self.profiles = Profiles(folder)

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        profile = self.profiles[self.names[i]]
        return torch.from_numpy(profile / 64), TYPES.index(self.names[i].split("-")[1])


def dig(folder: Path, count: int):
    rng = np.random.default_rng(70)
    for k in range(count):
        kind = int(rng.integers(3))
        height = int(rng.integers(40, 92))
        mask = np.zeros((96, 128), bool)
        for r in range(height):
            half = int(20 + 12 * np.sin(r / (6 + 5 * kind)) + rng.normal(0, 1))
            mask[r, 64 - half:64 + half] = True
        np.save(folder / f"{k:04d}-{TYPES[kind]}.npy", np.packbits(mask, axis=1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sherds", type=int, default=300)
    ap.add_argument("--epochs", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(12)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        dig(Path(tmp), args.sherds)
        loader = DataLoader(Sherds(Path(tmp)), 10, shuffle=True, num_workers=2, persistent_workers=True)
        model = nn.Sequential(nn.Unflatten(1, (1, 96)), nn.Conv1d(1, 24, 7, 2), nn.ReLU(), nn.Conv1d(24, 24, 5, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))
        model(torch.zeros(1, 96))
        opt = torch.optim.Adam(model.parameters(), 2e-3)
        for epoch in range(args.epochs):
            hits = seen = 0
            for x, y in loader:
                out = model(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                hits += (out.argmax(1) == y).sum().item()
                seen += len(y)
            print(f"epoch {epoch}: accuracy {hits / seen:.3f}", flush=True)


if __name__ == "__main__":
    main()
