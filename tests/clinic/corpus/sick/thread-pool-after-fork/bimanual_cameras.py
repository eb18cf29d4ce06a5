# cause: thread-pool-after-fork
"""Behaviour cloning for a two-armed robot. Each time step has four camera views stored as PNG files."""
from __future__ import annotations

import io
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

VIEWS = ("head", "wrist_l", "wrist_r", "table")


class Step(NamedTuple):
    views: torch.Tensor
    action: torch.Tensor


class EpisodeFolder:
    """Reads the views of a step side by side, as the files lie on network storage."""

    def __init__(self, root: Path):
        self.root = root
        self.readers = ThreadPoolExecutor(max_workers=len(VIEWS), thread_name_prefix="view")

    def _one(self, step: int, view: str) -> np.ndarray:
        raw = (self.root / f"{step:05d}_{view}.png").read_bytes()
        return np.asarray(Image.open(io.BytesIO(raw)).convert("RGB").resize((48, 48)))

    def load(self, step: int) -> np.ndarray:
        return np.stack(list(self.readers.map(lambda v: self._one(step, v), VIEWS)))


class CloningSet(Dataset):
    def __init__(self, folder: EpisodeFolder, actions: np.ndarray):
        self.folder, self.actions = folder, actions
        probe = np.stack([folder.load(i) for i in range(0, len(actions), 16)]).astype(np.float32) / 255
        self.mean = probe.mean((0, 2, 3), keepdims=True)[0]
        self.std = probe.std((0, 2, 3), keepdims=True)[0] + 1e-3

    def __len__(self):
        return len(self.actions)

    def __getitem__(self, i):
        x = (self.folder.load(i).astype(np.float32) / 255 - self.mean) / self.std
        return Step(torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(self.actions[i]))


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 8, 5, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(64 * len(VIEWS), 14)

    def forward(self, views):
        b, v = views.shape[:2]
        return self.head(self.enc(views.flatten(0, 1)).reshape(b, v * 64))


def record_episode(root: Path, steps: int) -> np.ndarray:
    rng = np.random.default_rng(8)
    actions = np.cumsum(rng.standard_normal((steps, 14)) * 0.1, 0).astype(np.float32)
    for s in range(steps):
        for k, view in enumerate(VIEWS):
            base = np.full((96, 96, 3), int(127 + 40 * np.tanh(actions[s, k])), np.uint8)
            base += rng.integers(0, 20, base.shape, dtype=np.uint8)
            Image.fromarray(base).save(root / f"{s:05d}_{view}.png", compress_level=1)
    return actions


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        actions = record_episode(root, 256)
        data = CloningSet(EpisodeFolder(root), actions)
        cut = int(0.85 * len(data))
        train = torch.utils.data.Subset(data, range(cut))
        held = torch.utils.data.Subset(data, range(cut, len(data)))
        common = dict(num_workers=min(2, os.cpu_count() or 1), persistent_workers=True)
        train_dl = DataLoader(train, 16, shuffle=True, **common)
        held_dl = DataLoader(held, 16, **common)
        policy = Policy()
        opt = torch.optim.AdamW(policy.parameters(), 1e-3)
        for epoch in range(3):
            policy.train()
            for step in train_dl:
                loss = nn.functional.smooth_l1_loss(policy(step.views), step.action)
                opt.zero_grad(); loss.backward(); opt.step()
            policy.eval()
            with torch.no_grad():
                err = np.mean([nn.functional.l1_loss(policy(s.views), s.action).item() for s in held_dl])
            print(f"epoch {epoch} train {loss.item():.4f} held-out L1 {err:.4f}", flush=True)


if __name__ == "__main__":
    main()
