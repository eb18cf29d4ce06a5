# limits: memory=1G
"""Crop types from random windows of a few big scenes; scenes are decoded once and kept for all readers."""
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

CROPS = ["wheat", "maize", "rape", "beet", "meadow"]
SIDE = 1024
WINDOW = 96


def write_scene(path, rng):
    fields = rng.integers(len(CROPS), size=(8, 8))
    labels = np.kron(fields, np.ones((SIDE // 8, SIDE // 8), np.int64)).astype(np.uint8)
    noise = rng.integers(0, 40, size=(4, SIDE, SIDE), dtype=np.uint8)
    np.savez(path, bands=noise + (labels * 30 + 20)[None].astype(np.uint8), labels=labels)


class SceneStore:
    """Decoded scenes in one shared block, made before the loaders are; whoever needs a scene first fills its slot."""

    def __init__(self, paths):
        self.slot = {p: k for k, p in enumerate(paths)}
        n = len(paths)
        self.bands = torch.zeros(n, 4, SIDE, SIDE, dtype=torch.uint8).share_memory_()
        self.labels = torch.zeros(n, SIDE, SIDE, dtype=torch.uint8).share_memory_()
        self.moments = torch.zeros(n, 2, 4).share_memory_()
        self.ready = torch.zeros(n, dtype=torch.uint8).share_memory_()

    def open(self, path):
        k = self.slot[path]
        if not self.ready[k]:
            with np.load(path) as z:
                bands = torch.from_numpy(z["bands"])
                self.bands[k] = bands
                self.labels[k] = torch.from_numpy(z["labels"])
            sample = bands[:, ::8, ::8].float()
            self.moments[k, 0] = sample.mean((1, 2))
            self.moments[k, 1] = sample.std((1, 2)) + 1e-6
            self.ready[k] = 1
        return self.bands[k], self.labels[k], self.moments[k]


class Scene(Dataset):
    def __init__(self, store, path, n_windows):
        self.store, self.path, self.n_windows = store, path, n_windows

    def __len__(self):
        return self.n_windows

    def __getitem__(self, _):
        bands, labels, (mean, std) = self.store.open(self.path)
        y, x = torch.randint(SIDE - WINDOW, (2,)).tolist()
        win = (bands[:, y:y + WINDOW, x:x + WINDOW].float() - mean[:, None, None]) / std[:, None, None]
        crop = torch.bincount(labels[y:y + WINDOW, x:x + WINDOW].flatten(), minlength=len(CROPS)).argmax()
        if torch.rand(()) < 0.5:
            win = win.flip(1)
        return win, crop


class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.a = nn.Conv2d(i, o, 3, stride=2, padding=1)
        self.b = nn.Conv2d(o, o, 3, padding=1)
        self.n = nn.BatchNorm2d(o)

    def forward(self, x):
        x = self.a(x).relu()
        return self.n(x + self.b(x)).relu()


def train(root, n_scenes=20, epochs=3, batch_size=32, workers=1):
    rng = np.random.default_rng(9)
    paths = [os.path.join(root, f"T33UVR_{k:02d}.npz") for k in range(n_scenes)]
    for p in paths:
        write_scene(p, rng)
    store = SceneStore(paths)
    train_set = ConcatDataset([Scene(store, p, 64) for p in paths[:-1]])
    val_set = Scene(store, paths[-1], 128)
    train_dl = DataLoader(train_set, batch_size, shuffle=True, num_workers=workers, persistent_workers=True, drop_last=True)
    val_dl = DataLoader(val_set, batch_size)
    model = nn.Sequential(Block(4, 24), Block(24, 48), Block(48, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(64, len(CROPS)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=epochs * len(train_dl))
    for epoch in range(epochs):
        model.train()
        t0, running = time.time(), 0.0
        for it, (x, y) in enumerate(train_dl, 1):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            running += loss.item()
            if it % 10 == 0:
                print(f"{epoch} {it:3d}/{len(train_dl)} loss {running / it:.3f}", flush=True)
        model.eval()
        with torch.no_grad():
            good = sum((model(x).argmax(1) == y).sum().item() for x, y in val_dl)
        print(f"epoch {epoch} val acc {good / len(val_set):.3f} in {time.time() - t0:.1f}s", flush=True)
    torch.save(model.state_dict(), os.path.join(root, "crops.pt"))


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="croptype_") as tmp:
        train(tmp)
