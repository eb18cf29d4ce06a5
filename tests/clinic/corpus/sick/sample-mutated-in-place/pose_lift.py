# cause: sample-mutated-in-place
"""Lift 2D key points to 3D. Annotations are small, so they stay in memory as dicts."""
import json
import os
import tempfile
from typing import Dict, List

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

JOINTS = 17


class Annotations(Dataset):
    def __init__(self, path, transforms=()):
        with open(path) as f:
            self.records: List[Dict] = json.load(f)["annotations"]
        for r in self.records:
            r["kp2d"] = np.asarray(r["kp2d"], dtype=np.float32)
            r["kp3d"] = np.asarray(r["kp3d"], dtype=np.float32)
        self.transforms = list(transforms)

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        sample = self.records[i]
        for t in self.transforms:
            sample = t(sample)
        return torch.tensor(sample["kp2d"]), torch.tensor(sample["kp3d"])


class RootCentre:
    def __call__(self, sample):
        sample["kp3d"] = sample["kp3d"] - sample["kp3d"][:1]
        return sample


class ImageScale:
    """Pixels to [-1, 1] by the size of the image."""

    def __call__(self, sample):
        w, h = sample["size"]
        sample["kp2d"][:, 0] /= w / 2
        sample["kp2d"][:, 1] /= h / 2
        sample["kp2d"] -= 1.0
        return sample


class Smooth:
    """Bone-length consistency by a few relaxation rounds."""

    def __init__(self, rounds=30):
        self.rounds = rounds

    def __call__(self, sample):
        kp = sample["kp3d"].astype(np.float64)
        for _ in range(self.rounds):
            bones = np.diff(kp, axis=0)
            norm = np.linalg.norm(bones, axis=1, keepdims=True) + 1e-9
            kp = np.concatenate([kp[:1], kp[:1] + np.cumsum(bones / norm * norm.mean(), axis=0)])
        return {**sample, "kp3d": (0.9 * sample["kp3d"] + 0.1 * kp).astype(np.float32)}


def make_annotations(path, n):
    rs = np.random.RandomState(0)
    rows = []
    for _ in range(n):
        p3 = np.cumsum(rs.normal(0, .2, (JOINTS, 3)), 0) + [0, 0, 4]
        w, h = 640, 480
        p2 = p3[:, :2] / p3[:, 2:].clip(.5) * 300 + [w / 2, h / 2]
        rows.append({"size": [w, h], "kp2d": p2.round(2).tolist(), "kp3d": p3.round(4).tolist()})
    with open(path, "w") as f:
        json.dump({"annotations": rows}, f)


def main(epochs=5):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "train.json")
        make_annotations(path, 400)
        data = Annotations(path, [RootCentre(), ImageScale(), Smooth()])
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(2 * JOINTS, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                          nn.Linear(512, 3 * JOINTS), nn.Unflatten(1, (JOINTS, 3)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        errors, inputs = [], []
        for kp2d, kp3d in loader:
            error = (model(kp2d) - kp3d).norm(dim=-1).mean()
            opt.zero_grad()
            error.backward()
            opt.step()
            errors.append(error.item())
            inputs.append(kp2d.mean().item())
        print(f"epoch {epoch} mpjpe {np.mean(errors):.4f} (mean input {np.mean(inputs):+.4f})", flush=True)


if __name__ == "__main__":
    main()
