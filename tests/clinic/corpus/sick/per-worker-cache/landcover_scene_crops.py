# cause: per-worker-cache
# also: worker-out-of-memory, too-many-workers
# limits: memory=1G
"""Land cover classification from random crops of a handful of big scenes (ResNet-ish, 5 classes)."""
import os
import tempfile
import time
from functools import lru_cache

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

CLASSES = ["water", "forest", "crop", "urban", "bare"]
SCENE_SIDE = 1024
CROP = 96


def write_scene(path, rng):
    grid = rng.integers(len(CLASSES), size=(8, 8))
    labels = np.kron(grid, np.ones((SCENE_SIDE // 8, SCENE_SIDE // 8), np.int64)).astype(np.uint8)
    texture = rng.integers(0, 40, size=(4, SCENE_SIDE, SCENE_SIDE), dtype=np.uint8)
    bands = texture + (labels * 30 + 20)[None].astype(np.uint8)
    np.savez(path, bands=bands, labels=labels)


class Scene(Dataset):
    """All random crops of one scene."""

    def __init__(self, store, path, n_crops):
        self.store, self.path, self.n_crops = store, path, n_crops

    def __len__(self):
        return self.n_crops

    def __getitem__(self, _):
        bands, labels = self.store.open(self.path)
        y, x = torch.randint(SCENE_SIDE - CROP, (2,)).tolist()
        crop = bands[:, y:y + CROP, x:x + CROP]
        cls = int(np.bincount(labels[y:y + CROP, x:x + CROP].ravel(), minlength=len(CLASSES)).argmax())
        if torch.rand(()) < 0.5:
            crop = crop[:, ::-1]
        return torch.from_numpy(crop.copy()), cls


class SceneStore:
    def __init__(self):
        self._scenes = {}

    def open(self, path):
        if path not in self._scenes:
            with np.load(path) as z:
                bands = z["bands"].astype(np.float32) / 255.0
                bands -= bands.mean((1, 2), keepdims=True)
                bands /= bands.std((1, 2), keepdims=True) + 1e-6
                self._scenes[path] = bands, z["labels"]
        return self._scenes[path]


class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.a = nn.Conv2d(i, o, 3, stride=2, padding=1)
        self.b = nn.Conv2d(o, o, 3, padding=1)
        self.n = nn.BatchNorm2d(o)

    def forward(self, x):
        x = self.a(x).relu()
        return self.n(x + self.b(x)).relu()


@lru_cache(maxsize=None)
def class_weights():
    w = torch.ones(len(CLASSES))
    w[CLASSES.index("urban")] = 1.5
    return w


def train(root, n_scenes=20, epochs=4, batch_size=32, workers=4):
    rng = np.random.default_rng(5)
    paths = [os.path.join(root, f"T32UQD_{k:02d}.npz") for k in range(n_scenes)]
    for p in paths:
        write_scene(p, rng)
    store = SceneStore()
    train_set = ConcatDataset([Scene(store, p, 160) for p in paths[:-1]])
    val_set = Scene(store, paths[-1], 128)
    train_dl = DataLoader(train_set, batch_size, shuffle=True, num_workers=workers, persistent_workers=True, drop_last=True)
    val_dl = DataLoader(val_set, batch_size)

    model = nn.Sequential(Block(4, 24), Block(24, 48), Block(48, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(64, len(CLASSES)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=epochs * len(train_dl))
    for epoch in range(epochs):
        model.train()
        t0, running = time.time(), 0.0
        for it, (x, y) in enumerate(train_dl, 1):
            loss = nn.functional.cross_entropy(model(x), y, weight=class_weights())
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            running += loss.item()
            if it % 20 == 0:
                print(f"{epoch} {it:3d}/{len(train_dl)} loss {running / it:.3f} lr {sched.get_last_lr()[0]:.1e}", flush=True)
        model.eval()
        good = 0
        with torch.no_grad():
            for x, y in val_dl:
                good += (model(x).argmax(1) == y).sum().item()
        print(f"epoch {epoch} val acc {good / len(val_set):.3f} in {time.time() - t0:.1f}s", flush=True)
    torch.save(model.state_dict(), os.path.join(root, "landcover.pt"))


if __name__ == "__main__":
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory(prefix="landcover_") as tmp:
        train(tmp)
