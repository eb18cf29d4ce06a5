# cause: dataset-raises
"""Depth completion from two cameras; each frame is one raw float file."""
import os
import sys
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

CAMERAS = {"left": (48, 64), "rear": (40, 64)}


class Rig:
    def __init__(self, rows=48, cols=64):
        u, v = np.meshgrid(np.linspace(-1, 1, cols), np.linspace(-1, 1, rows))
        self.vignette = (1 / (1 + 0.3 * (u ** 2 + v ** 2))).astype(np.float32)

    def correct(self, depth):
        return depth / self.vignette


class Frames(Dataset):
    def __init__(self, root, camera, rig, keep=0.2):
        self.shape, self.rig, self.keep = CAMERAS[camera], rig, keep
        self.files = sorted(os.path.join(root, f) for f in os.listdir(root) if f.startswith(camera))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        raw = np.fromfile(self.files[i], dtype=np.float32).reshape(self.shape)
        depth = self.rig.correct(raw)[:40]
        full = torch.from_numpy(depth)[None]
        mask = (torch.rand_like(full) < self.keep).float()
        return torch.cat([full * mask, mask]), full


def record(root, n):
    rng = np.random.default_rng(12)
    for cam, (h, w) in CAMERAS.items():
        for i in range(n):
            plane = np.linspace(1, 6, h)[:, None] + rng.normal(0, 0.05, (h, w)) + rng.random()
            plane.astype(np.float32).tofile(os.path.join(root, f"{cam}_{i:04d}.raw"))


class Completion(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(2, c, 5, padding=2), nn.ReLU(), nn.Conv2d(c, c, 5, padding=2), nn.ReLU(), nn.Conv2d(c, 1, 1))

    def forward(self, x):
        return self.net(x)


def evaluate(net, loader):
    with torch.no_grad():
        return float(np.mean([(net(x) - y).abs().mean().item() for x, y in loader]))


def main(workers):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        record(root, 120)
        rig = Rig()
        data = ConcatDataset([Frames(root, cam, rig) for cam in CAMERAS])
        loader = DataLoader(data, batch_size=8, num_workers=workers)
        net = Completion()
        opt = torch.optim.Adam(net.parameters(), lr=2e-3)
        for k, (x, y) in enumerate(loader):
            loss = nn.functional.l1_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if k % 5 == 0:
                print(f"frame batch {k}: L1 {loss.item():.3f} m", flush=True)
        print("mean absolute error", evaluate(net, loader))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
