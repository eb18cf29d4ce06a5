# cause: view-of-large-storage
"""Self-supervised patch model on large scans; a few small patches are cut from each scan."""
import logging
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger(__name__)

SCAN = 5000
PATCH = 24
PER_SCAN = 2


def write_scans(folder, count):
    rng = np.random.default_rng(1)
    for i in range(count):
        tile = rng.integers(0, 255, (SCAN // 10, SCAN // 10), dtype=np.uint8)
        np.save(folder / f"scan{i}.npy", np.tile(tile, (10, 10)))


def decode(path):
    return torch.from_numpy(np.load(path, mmap_mode="c"))


class RandomPatches:
    def __init__(self, size, count):
        self.size, self.count = size, count

    def __call__(self, scan):
        found = []
        for _ in range(self.count):
            top, left = torch.randint(0, SCAN - self.size, (2,)).tolist()
            found.append(scan.narrow(0, top, self.size).narrow(1, left, self.size))
        return found


class Scans(Dataset):
    def __init__(self, folder, transform, rounds):
        self.paths = sorted(folder.glob("*.npy"))
        self.transform = transform
        self.rounds = rounds

    def __len__(self):
        return len(self.paths) * self.rounds

    def __getitem__(self, i):
        path = self.paths[i % len(self.paths)]
        return {"name": path.stem, "patches": self.transform(decode(path))}


def merge(samples):
    patches = [p for s in samples for p in s["patches"]]
    names = [s["name"] for s in samples for _ in s["patches"]]
    return {"patches": patches, "names": names}


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(PATCH * PATCH, 64)
        self.dec = nn.Linear(64, PATCH * PATCH)

    def forward(self, x):
        return self.dec(torch.relu(self.enc(x)))


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        write_scans(folder, 8)
        loader = DataLoader(Scans(folder, RandomPatches(PATCH, PER_SCAN), rounds=12), batch_size=4, shuffle=True,
                            num_workers=2, collate_fn=merge)
        model = AutoEncoder()
        opt = torch.optim.SGD(model.parameters(), 0.01)
        for epoch in range(2):
            for batch in loader:
                x = torch.stack(batch["patches"]).flatten(1).float() / 255
                x = x + 0.02 * torch.randn_like(x)
                loss = F.mse_loss(model(x), x)
                opt.zero_grad()
                loss.backward()
                opt.step()
            log.info("epoch %d reconstruction %.4f", epoch, loss.item())


if __name__ == "__main__":
    main()
