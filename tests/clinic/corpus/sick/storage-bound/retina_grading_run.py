# cause: storage-bound
# also: too-few-workers
"""Diabetic retinopathy grading: fundus photographs on the hospital share, small CNN, weighted sampling."""
import io
import os
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

CFG = {"images": 240, "side": 64, "batch": 12, "epochs": 3, "workers": 4, "grades": 5, "lr": 2e-3}


class ShareFile(io.RawIOBase):
    """A file on the mounted share, read in the block size that the share grants (8 KiB).
    The round trip of one block is that of the real mount over the campus line."""

    BLOCK = 8192
    ROUND_TRIP = 0.018

    def __init__(self, path):
        self._fd = os.open(path, os.O_RDONLY)
        time.sleep(self.ROUND_TRIP)

    def readable(self):
        return True

    def readinto(self, buffer):
        data = os.read(self._fd, min(len(buffer), self.BLOCK))
        time.sleep(self.ROUND_TRIP)
        buffer[: len(data)] = data
        return len(data)

    def close(self):
        if not self.closed:
            os.close(self._fd)
        super().close()


def slurp(path):
    with ShareFile(path) as handle:
        return handle.readall()


def export_study(folder):
    rng = np.random.default_rng(5)
    rows = []
    yy, xx = np.mgrid[-1:1:64j, -1:1:64j]
    disc = (xx ** 2 + yy ** 2 < 0.9).astype(np.float32)
    for i in range(CFG["images"]):
        grade = int(rng.choice(5, p=[0.5, 0.2, 0.15, 0.1, 0.05]))
        image = disc[..., None] * np.array([150.0, 70.0, 30.0]) + rng.normal(0, 12, (64, 64, 3))
        for _ in range(grade * 4):
            r, c = rng.integers(10, 52, 2)
            image[r : r + 4, c : c + 4] = (90, 10, 10)
        path = os.path.join(folder, f"eye_{i:05d}.png")
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(path)
        rows.append((path, grade))
    return rows


class Fundus(Dataset):
    def __init__(self, rows, augment):
        self.paths = np.array([p for p, _ in rows])
        self.grades = np.array([g for _, g in rows])
        self.augment = augment

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        picture = Image.open(io.BytesIO(slurp(str(self.paths[i])))).convert("RGB")
        x = torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float().div_(255)
        if self.augment and torch.rand(()) < 0.5:
            x = x.flip(-1)
        return x, int(self.grades[i])


class Grader(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 12, 5, stride=2), nn.ReLU(), nn.Conv2d(12, 24, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(216, CFG["grades"]))


def loaders(rows):
    cut = len(rows) * 5 // 6
    train, valid = Fundus(rows[:cut], True), Fundus(rows[cut:], False)
    freq = np.bincount(train.grades, minlength=5)
    sampler = WeightedRandomSampler(torch.as_tensor(1.0 / freq[train.grades]), len(train))
    kw = dict(batch_size=CFG["batch"], num_workers=CFG["workers"], persistent_workers=True)
    return DataLoader(train, sampler=sampler, **kw), DataLoader(valid, **kw)


def run():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="fundus-")
    try:
        train, valid = loaders(export_study(folder))
        net = Grader()
        optimiser = torch.optim.SGD(net.parameters(), lr=CFG["lr"], momentum=0.9)
        for epoch in range(1, CFG["epochs"] + 1):
            start = time.perf_counter()
            net.train()
            for x, y in train:
                loss = F.cross_entropy(net(x), y)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            net.eval()
            hits = total = 0
            with torch.no_grad():
                for x, y in valid:
                    hits += (net(x).argmax(1) == y).sum().item()
                    total += len(y)
            torch.save(net.state_dict(), os.path.join(folder, "last.pt"))
            print(f"[{epoch}] loss={loss.item():.3f} acc={hits / total:.2%} {time.perf_counter() - start:.2f}s", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    run()
