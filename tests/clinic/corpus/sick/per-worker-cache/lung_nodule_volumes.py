# cause: per-worker-cache
# also: worker-out-of-memory
# limits: memory=900M
"""Lung nodule malignancy on small CT volumes. Volumes are stored coarse and quantised, and rebuilt when read."""
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOLUMES = 320
COARSE = (14, 28, 28)
FACTOR = (2, 4, 4)


class StoredItems:
    """Items on disk by number; subclasses say how one is read."""

    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.npz"))
        self._known = {}

    def __len__(self):
        return len(self.paths)

    def item(self, number):
        if number not in self._known:
            self._known[number] = self.rebuild(self.paths[number])
        return self._known[number]

    def rebuild(self, path):
        raise NotImplementedError


def smooth(volume, axis):
    return (np.roll(volume, 1, axis) + 2 * volume + np.roll(volume, -1, axis)) / 4


class CtVolumes(StoredItems):
    def rebuild(self, path):
        with np.load(path) as stored:
            volume = stored["voxels"].astype(np.float32) * float(stored["step"])
            label = int(stored["label"])
        for axis, factor in enumerate(FACTOR):
            volume = smooth(np.repeat(volume, factor, axis), axis)
        return volume, label


class NodulePatches(CtVolumes, Dataset):
    """A random patch about the middle of each volume."""

    def __init__(self, folder, patch=(16, 40, 40), training=True):
        super().__init__(folder)
        self.patch, self.training = patch, training

    def __getitem__(self, number):
        volume, label = self.item(number)
        corner = []
        for size, want in zip(volume.shape, self.patch):
            slack = (size - want) // 2
            corner.append(slack + (np.random.randint(-slack // 2, slack // 2 + 1) if self.training else 0))
        z, y, x = corner
        d, h, w = self.patch
        patch = volume[z:z + d, y:y + h, x:x + w]
        patch = np.clip((patch + 1000) / 1400, 0, 1)
        if self.training and np.random.rand() < 0.5:
            patch = patch[:, :, ::-1]
        return torch.from_numpy(np.ascontiguousarray(patch, dtype=np.float32)), label


def make_volumes(folder, count, seed=9):
    rng = np.random.default_rng(seed)
    z, y, x = np.meshgrid(*(np.arange(n) for n in COARSE), indexing="ij")
    for number in range(count):
        label = int(rng.integers(2))
        radius = rng.uniform(2, 3) if label else rng.uniform(1, 2)
        centre = np.array(COARSE) / 2 + rng.uniform(-1, 1, 3)
        nodule = (z - centre[0]) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2 < radius ** 2
        voxels = rng.normal(-850, 40, COARSE)
        voxels[nodule] = rng.normal(30, 60, nodule.sum())
        np.savez(Path(folder) / f"ct{number:04d}.npz", voxels=(voxels / 10).clip(-127, 127).astype(np.int8), step=10.0, label=label)


class NoduleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv3d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv3d(8, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveMaxPool3d(2), nn.Flatten(), nn.Linear(128, 1))

    def forward(self, x):
        return self.net(x[:, None])[:, 0]


def run():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="ct-") as folder:
        make_volumes(folder, VOLUMES)
        loader = DataLoader(NodulePatches(folder), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True, drop_last=True)
        model = NoduleNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(8):
            start, hits = time.perf_counter(), 0
            for patches, labels in loader:
                logits = model(patches)
                loss = nn.functional.binary_cross_entropy_with_logits(logits, labels.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                hits += ((logits > 0) == labels.bool()).sum().item()
            print(f"epoch {epoch}: accuracy {hits / len(loader) / 8:.3f}, {time.perf_counter() - start:.1f} s", flush=True)
        torch.save(model.state_dict(), Path(folder) / "nodule.pt")


if __name__ == "__main__":
    run()
