# cause: rng-repeated
import functools
import logging
import os
import shutil
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("points")
SHAPES = ("sphere", "cube", "torus")


def sample_shape(kind, n, rs):
    v = rs.normal(size=(n, 3))
    if kind == "sphere":
        return v / np.linalg.norm(v, axis=1, keepdims=True)
    if kind == "cube":
        return v / np.abs(v).max(axis=1, keepdims=True)
    a, b = rs.uniform(0, 2 * np.pi, (2, n))
    return np.stack([(1 + .3 * np.cos(b)) * np.cos(a), (1 + .3 * np.cos(b)) * np.sin(a), .3 * np.sin(b)], 1)


def perturb(points, state, sigma=0.02, keep=512):
    angle = state.uniform(0, 2 * np.pi)
    c, s = np.cos(angle), np.sin(angle)
    rot = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    pick = state.permutation(len(points))[:keep]
    out = points[pick] @ rot.T
    out = out * state.uniform(0.8, 1.2) + state.normal(0, sigma, out.shape)
    return out


def farthest_first(points, k=32):
    chosen = [0]
    dist = np.full(len(points), np.inf)
    for _ in range(k - 1):
        dist = np.minimum(dist, ((points - points[chosen[-1]]) ** 2).sum(1))
        chosen.append(int(dist.argmax()))
    return points[chosen]


class CloudFile(Dataset):
    """One .npz per shape, many clouds inside; `augment` gets one (N, 3) cloud."""

    def __init__(self, path, label, augment=None):
        with np.load(path) as z:
            self.clouds = z["clouds"]
        self.label, self.augment = label, augment

    def __len__(self):
        return len(self.clouds)

    def __getitem__(self, i):
        pts = self.clouds[i].astype(np.float64)
        if self.augment is not None:
            pts = self.augment(pts)
        anchors = farthest_first(pts)
        rel = pts[None, :, :] - anchors[:, None, :]
        nearest = np.argsort((rel ** 2).sum(-1), axis=1)[:, :16]
        groups = np.take_along_axis(rel, nearest[..., None], axis=1)
        return torch.as_tensor(groups, dtype=torch.float32), self.label


class GroupNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 128))
        self.globl = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128))
        self.out = nn.Linear(128, classes)

    def forward(self, g):
        h = self.local(g).amax(2)
        return self.out(self.globl(h).amax(1))


def main(epochs=3, batch=16):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    root = tempfile.mkdtemp()
    try:
        rs = np.random.RandomState(3)
        augment = functools.partial(perturb, state=np.random.RandomState(77), keep=640)
        parts = []
        for label, kind in enumerate(SHAPES):
            path = os.path.join(root, kind + ".npz")
            np.savez(path, clouds=np.stack([sample_shape(kind, 1024, rs) for _ in range(48)]).astype(np.float32))
            parts.append(CloudFile(path, label, augment))
        loader = DataLoader(ConcatDataset(parts), batch_size=batch, shuffle=True, num_workers=2,
                            persistent_workers=True)
        net = GroupNet(len(SHAPES))
        opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        for ep in range(epochs):
            correct = 0
            for groups, y in loader:
                logits = net(groups)
                loss = F.cross_entropy(logits, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                correct += int((logits.argmax(-1) == y).sum())
            log.info("epoch %d acc %.3f", ep, correct / len(loader.dataset))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
