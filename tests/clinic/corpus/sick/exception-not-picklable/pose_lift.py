# cause: exception-not-picklable
# also: dataset-raises, bad-sample
"""Lift 2D key points to 3D. Frames come as small JSON annotation files."""
import argparse
import json
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

JOINTS = 17


def annotation_parser(schema):
    """Returns a parser for one version of the annotation format."""

    class AnnotationError(ValueError):
        def __init__(self, text):
            super().__init__(f"schema {schema['version']}: {text}")

    def parse(path):
        with open(path) as f:
            doc = json.load(f)
        points = np.asarray(doc["points"], dtype=np.float32)
        if points.shape != (schema["joints"], 5):
            raise AnnotationError(f"{os.path.basename(path)} has {len(points)} joints")
        return points

    return parse


class Frames(Dataset):
    def __init__(self, root, parse):
        self.paths = sorted(os.path.join(root, f) for f in os.listdir(root))
        self.parse = parse

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        p = self.parse(self.paths[i])
        flat, depth = p[:, :2], p[:, 2:]
        centre = flat.mean(0, keepdims=True)
        return torch.from_numpy(flat - centre).flatten(), torch.from_numpy(depth - depth.mean(0)).flatten()


def annotate(root, n):
    rng = np.random.default_rng(0)
    for i in range(n):
        xyz = rng.normal(size=(JOINTS, 3))
        rows = np.concatenate([xyz[:, :2] / (xyz[:, 2:] + 5), xyz], 1)
        if i == n // 2 + 7:
            rows = rows[:-1]
        with open(os.path.join(root, f"{i:05d}.json"), "w") as f:
            json.dump({"id": i, "points": rows.round(5).tolist()}, f)


class Lifter(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.a = nn.Linear(JOINTS * 2, width)
        self.b = nn.Linear(width, width)
        self.c = nn.Linear(width, JOINTS * 3)

    def forward(self, x):
        h = torch.relu(self.a(x))
        return self.c(h + torch.relu(self.b(h)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--frames", type=int, default=900)
    ap.add_argument("--batch", type=int, default=30)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        annotate(root, a.frames)
        data = Frames(root, annotation_parser({"version": 3, "joints": JOINTS}))
        loader = DataLoader(data, batch_size=a.batch, shuffle=False, num_workers=a.workers)
        net = Lifter()
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=len(loader))
        for k, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            if k % 5 == 0:
                print(f"{k:4d} mpjpe {loss.sqrt().item():.3f}", flush=True)


if __name__ == "__main__":
    main()
