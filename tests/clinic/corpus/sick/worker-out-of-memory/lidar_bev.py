# cause: worker-out-of-memory
# limits: memory=900M
"""Bird's eye view occupancy from LiDAR sweeps -> drivable / not drivable."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOXEL = 0.2


def voxelise(points, voxel=VOXEL):
    """Dense log-count grid over the extent of the sweep."""
    lo = points.min(0)
    cells = np.floor((points - lo) / voxel).astype(np.int64)
    shape = cells.max(0) + 1
    grid = np.zeros(shape, np.float32)
    np.add.at(grid, tuple(cells.T), 1.0)
    return np.log1p(grid)


def bev(grid, side=32):
    flat = torch.from_numpy(grid).amax(-1)
    return nn.functional.adaptive_max_pool2d(flat[None, None], side)[0]


class Sweeps(Dataset):
    def __init__(self, drives, sweeps_per_drive, seed):
        self.seed = seed
        self.index = [(d, k) for d in range(drives) for k in range(sweeps_per_drive)]

    def __len__(self):
        return len(self.index)

    def scan(self, drive, k):
        rng = np.random.default_rng((self.seed, drive, k))
        label = int(rng.integers(0, 2))
        ground = np.c_[rng.uniform(-20, 20, (9000, 2)), rng.normal(0, 0.05, 9000)]
        obstacle = rng.normal((6, 0, 1.0), (1.0, 2.0, 0.4), (2500 * label + 10, 3))
        pts = np.concatenate([ground, obstacle])
        if (drive, k) == (7, 23):
            # retro-reflective sign posts far down the motorway
            pts = np.concatenate([pts, rng.normal((690, 540, 2), 1.0, (40, 3))])
        return pts, label

    def __getitem__(self, i):
        pts, label = self.scan(*self.index[i])
        return bev(voxelise(pts)), label


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, 2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))


def main():
    torch.manual_seed(0)
    train = DataLoader(Sweeps(12, 30, seed=1), batch_size=10, shuffle=True, num_workers=2, persistent_workers=True)
    val = DataLoader(Sweeps(2, 20, seed=2), batch_size=20, num_workers=2, persistent_workers=True)
    model = build_model()
    model(torch.zeros(2, 1, 32, 32))
    opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, nesterov=True)
    for epoch in range(3):
        model.train()
        for k, (x, y) in enumerate(train):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if k % 12 == 0:
                print(f"  {epoch}.{k:02d} loss {loss.item():.3f}", flush=True)
        model.eval()
        with torch.no_grad():
            good = sum((model(x).argmax(1) == y).sum().item() for x, y in val)
        print(f"epoch {epoch}: val {good}/40", flush=True)


if __name__ == "__main__":
    main()
