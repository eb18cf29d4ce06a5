# cause: worker-out-of-memory
# limits: memory=1G
"""Organ volume regression from CT studies resampled to a common spacing."""
import argparse
import json
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Study:
    def __init__(self, folder, name):
        with open(os.path.join(folder, name + ".json")) as f:
            meta = json.load(f)
        self.spacing = np.array(meta["spacing"])
        self.target = meta["volume"]
        self.voxels = np.load(os.path.join(folder, name + ".npy"))


def resample(voxels, spacing, wanted):
    """Nearest neighbour resampling to an isotropic grid."""
    shape = np.maximum(1, np.round(np.array(voxels.shape) * spacing / wanted)).astype(int)
    axes = [np.minimum((np.arange(n) * s / n).astype(int), s - 1) for n, s in zip(shape, voxels.shape)]
    return voxels[np.ix_(*axes)].astype(np.float64)


def crop_or_pad(v, side):
    out = np.zeros((side,) * 3, np.float32)
    n = [min(side, s) for s in v.shape]
    out[:n[0], :n[1], :n[2]] = v[:n[0], :n[1], :n[2]]
    return out


class Organs(Dataset):
    def __init__(self, folder, side=32, spacing=1.0):
        self.folder, self.side, self.spacing = folder, side, spacing
        self.names = sorted(f[:-4] for f in os.listdir(folder) if f.endswith(".npy"))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        s = Study(self.folder, self.names[i])
        v = resample(s.voxels, s.spacing, self.spacing)
        v = (v - v.mean()) / (v.std() + 1e-6)
        return torch.from_numpy(crop_or_pad(v, self.side))[None], torch.tensor(s.target, dtype=torch.float32)


def archive(folder, n):
    rng = np.random.default_rng(3)
    for i in range(n):
        r = float(rng.uniform(4, 12))
        z, y, x = np.ogrid[-16:16, -16:16, -16:16]
        v = (rng.normal(0, 20, (32, 32, 32)) + 300 * (x * x + y * y + z * z < r * r)).astype(np.int16)
        spacing = [1.0, 1.0, float(rng.choice([1.0, 1.25, 1.5]))]
        if i == 61:
            spacing = [17.0, 19.0, 17.5]
        np.save(os.path.join(folder, f"ct{i:03d}.npy"), v)
        with open(os.path.join(folder, f"ct{i:03d}.json"), "w") as f:
            json.dump({"spacing": spacing, "volume": 4.19 * r ** 3 / 1000}, f)


def net():
    return nn.Sequential(nn.Conv3d(1, 8, 3, 2), nn.ReLU(), nn.Conv3d(8, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, 1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--studies", type=int, default=90)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        archive(folder, a.studies)
        model = net()
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        for k, (v, t) in enumerate(DataLoader(Organs(folder), batch_size=5, num_workers=a.workers)):
            loss = nn.functional.mse_loss(model(v).squeeze(1), t)
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"batch {k} mse {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
