# limits: shm=64M
"""Aneurysm / no aneurysm from small cubes around candidate points of angiography volumes."""
import os
import tempfile
import time
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset


class Candidate(NamedTuple):
    z: int
    y: int
    x: int
    label: int
    extent: int


class Crop(NamedTuple):
    cube: torch.Tensor
    label: int
    extent: int


def write_volume(path, rng, shape=(32, 80, 80)):
    vol = rng.integers(-40, 40, size=shape, dtype=np.int16)
    found = []
    for k in range(5):
        z, y, x = (int(rng.integers(10, s - 10)) for s in shape)
        label = int(k % 2)
        if label:
            vol[z - 3:z + 3, y - 3:y + 3, x - 3:x + 3] += 120
        found.append(Candidate(z, y, x, label, int(rng.integers(5, 9))))
    np.savez_compressed(path, hu=vol)
    return found


class Scan(Dataset):
    """All candidates of one patient."""

    def __init__(self, path, candidates):
        self.path, self.candidates = path, candidates

    def __len__(self):
        return len(self.candidates)

    def volume(self):
        with np.load(self.path) as z:
            hu = torch.from_numpy(z["hu"].astype(np.float32))
        iso = nn.functional.interpolate(hu[None, None], scale_factor=2.0, mode="nearest")[0, 0]
        return iso.clamp_(-200, 300).div_(250.0)

    def __getitem__(self, k):
        c = self.candidates[k]
        r = c.extent
        z, y, x = 2 * c.z, 2 * c.y, 2 * c.x
        return Crop(self.volume()[z - r:z + r, y - r:y + r, x - r:x + r].clone(), c.label, r)


class CubeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 16, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(32, 2)

    def forward(self, cubes):
        feats = []
        for cube in cubes:
            h = self.conv(cube[None, None])
            feats.append(torch.cat([h.mean((2, 3, 4)), h.amax((2, 3, 4))], 1))
        return self.head(torch.cat(feats))


def by_field(samples, fields):
    # cubes differ in size, so they stay apart
    return {f: [getattr(s, f) for s in samples] for f in fields}


def main():
    torch.manual_seed(6)
    rng = np.random.default_rng(6)
    with tempfile.TemporaryDirectory(prefix="angio_") as folder:
        scans = []
        for p in range(16):
            path = os.path.join(folder, f"p{p:02d}.npz")
            scans.append(Scan(path, write_volume(path, rng)))
        loader = DataLoader(ConcatDataset(scans), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True,
                            collate_fn=partial(by_field, fields=("cube", "label", "extent")))
        net = CubeNet()
        opt = torch.optim.Adam(net.parameters(), lr=2e-3)
        for epoch in range(3):
            total = 0.0
            for batch in loader:
                loss = nn.functional.cross_entropy(net(batch["cube"]), torch.tensor(batch["label"]))
                opt.zero_grad()
                loss.backward()
                opt.step()
                time.sleep(0.03)    # stands for the accelerator
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
