# cause: worker-out-of-memory
# limits: memory=1G
"""Object type from LiDAR clusters, described by the distribution of pairwise distances (D2 shape distribution)."""
import collections
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = ["car", "pedestrian", "pole", "wall"]
SCALE = {"car": (4.2, 1.8, 1.5), "pedestrian": (0.6, 0.6, 1.8), "pole": (0.2, 0.2, 4.0), "wall": (12.0, 0.3, 2.5)}


def simulate_drive(n, seed):
    """Clusters as the segmentation stage hands them over: a few hundred points each, more when the car stands close."""
    rng = np.random.default_rng(seed)
    clusters = []
    for i in range(n):
        kind = int(rng.integers(len(KINDS)))
        distance = rng.uniform(6.0, 60.0)
        if i == n // 2:
            distance, kind = 0.9, 3
        points = int(np.clip(6500 / distance, 120, 7200))
        xyz = rng.uniform(-0.5, 0.5, size=(points, 3)) * SCALE[KINDS[kind]]
        clusters.append((xyz + rng.normal(0, 0.02, size=xyz.shape), kind))
    return clusters


class D2Descriptor:
    def __init__(self, bins=64, reach=14.0):
        self.edges = np.linspace(0.0, reach, bins + 1)

    def __call__(self, xyz):
        delta = xyz[:, None, :] - xyz[None, :, :]
        dist = np.sqrt((delta ** 2).sum(-1))
        hist, _ = np.histogram(dist, bins=self.edges)
        return (hist / hist.sum()).astype(np.float32)


class Clusters(Dataset):
    def __init__(self, clusters, describe):
        self.clusters, self.describe = clusters, describe

    def __len__(self):
        return len(self.clusters)

    def __getitem__(self, i):
        xyz, kind = self.clusters[i]
        extent = np.ptp(xyz, axis=0).astype(np.float32)
        return {"d2": self.describe(xyz), "extent": extent, "kind": kind}


class ShapeNet(nn.Module):
    def __init__(self, bins=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(bins + 3, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, len(KINDS)))

    def forward(self, batch):
        return self.net(torch.cat([batch["d2"] * 10, batch["extent"]], dim=1))


def train(net, loader, epochs):
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.StepLR(opt, 2, gamma=0.5)
    for epoch in range(epochs):
        t0, confusion = time.time(), collections.Counter()
        for batch in loader:
            out = net(batch)
            loss = nn.functional.cross_entropy(out, batch["kind"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            confusion.update(zip(batch["kind"].tolist(), out.argmax(1).tolist()))
        sched.step()
        diag = sum(v for (a, b), v in confusion.items() if a == b)
        print(f"epoch {epoch}: acc {diag / sum(confusion.values()):.3f} in {time.time() - t0:.1f}s", flush=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(Clusters(simulate_drive(700, seed=8), D2Descriptor()), batch_size=14, shuffle=True,
                        num_workers=2)
    train(ShapeNet(), loader, epochs=3)


if __name__ == "__main__":
    main()
