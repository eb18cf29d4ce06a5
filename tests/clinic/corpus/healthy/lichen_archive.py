"""Lichen species from herbarium scans that are packed into archives."""
import argparse
import os
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

SIDE = 256


def pack_box(path, sheets, seed):
    rng = np.random.default_rng(seed)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as pack:
        for n in range(sheets):
            species = n % 4
            sheet = rng.integers(0, 120 + species * 30, (SIDE, SIDE), dtype=np.uint8)
            pack.writestr(f"{species}/{n:05d}.raw", sheet.tobytes())


class Boxes:
    """Open archives by process and path."""

    _opened = {}

    @classmethod
    def of(cls, path):
        key = os.getpid(), str(path)
        if key not in cls._opened:
            cls._opened[key] = zipfile.ZipFile(path)
        return cls._opened[key]


class HerbariumSheets(Dataset):
    def __init__(self, path):
        self.path = path
        self.names = Boxes.of(path).namelist()

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        raw = np.frombuffer(Boxes.of(self.path).read(name), np.uint8).reshape(SIDE, SIDE)
        small = raw.reshape(64, 4, 64, 4).mean(axis=(1, 3), dtype=np.float32) / 255.0
        if torch.rand(()) < 0.5:
            small = small[:, ::-1].copy()
        return torch.from_numpy(small)[None], int(name.split("/")[0])


class SpeciesNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(),
                                  nn.MaxPool2d(2), nn.Conv2d(48, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(64 * 16, 4)

    def forward(self, sheet):
        return self.head(self.body(sheet).flatten(1))


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr, momentum=0.9)

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            losses = []
            for sheet, species in loader:
                loss = nn.functional.cross_entropy(self.model(sheet), species)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                losses.append(loss.item())
            print(f"epoch {epoch} loss {np.mean(losses):.4f} over {len(losses)} batches", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"box{n}.zip" for n in range(3)]
        for seed, path in enumerate(paths):
            pack_box(path, 128, seed)
        sheets = ConcatDataset([HerbariumSheets(p) for p in paths])
        loader = DataLoader(sheets, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
        Trainer(SpeciesNet(), 0.02).fit(loader, args.epochs)


if __name__ == "__main__":
    main()
