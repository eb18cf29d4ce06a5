# cause: stale-iterator-noise
"""Diabetic retinopathy grading, step-based epochs (fundus patients are stored in volumes of 64 images)."""
import gc
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GRADES = 5
SIDE = 64


def prepare(root, volumes=8, per_volume=64):
    rng = np.random.default_rng(2)
    for v in range(volumes):
        np.savez(root / f"vol{v}.npz",
                 img=rng.integers(0, 255, (per_volume, 3, SIDE, SIDE), dtype=np.uint8),
                 grade=rng.integers(0, GRADES, per_volume))
    return volumes * per_volume


class FundusVolumes(Dataset):
    """Keeps exactly one volume in memory; volumes are big on the real storage."""

    def __init__(self, root, n, per_volume=64):
        self.root, self.n, self.per_volume = root, n, per_volume
        self.current, self.data = None, None

    def _open(self, v):
        if v != self.current:
            self.data = None
            gc.collect()
            with np.load(self.root / f"vol{v}.npz") as z:
                self.data = {"img": z["img"], "grade": z["grade"]}
            self.current = v

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self._open(i // self.per_volume)
        k = i % self.per_volume
        return torch.from_numpy(self.data["img"][k]), int(self.data["grade"][k])


class VolumeOrder(torch.utils.data.Sampler):
    """Shuffles volumes, then images inside a volume, so that a volume is opened once."""

    def __init__(self, n, per_volume=64):
        self.n, self.per_volume = n, per_volume

    def __len__(self):
        return self.n

    def __iter__(self):
        for v in torch.randperm(self.n // self.per_volume).tolist():
            for k in torch.randperm(self.per_volume).tolist():
                yield v * self.per_volume + k


class BatchFeeder:
    """Wraps a loader: casts, normalises and augments whole batches through a list of hooks."""

    def __init__(self, loader, train=True):
        self.loader = loader
        self.batches = iter(loader)
        self.hooks = [self.cast, self.normalise]
        if train:
            self.hooks.append(self.mirror)

    def cast(self, x):
        return x.float()

    def normalise(self, x):
        return (x - 127.5) / 64.0

    def mirror(self, x):
        return x.flip(-1) if torch.rand(()) < 0.5 else x

    def next(self):
        x, y = next(self.batches)
        for hook in self.hooks:
            x = hook(x)
        return x, y


class Grader(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, c, 5, stride=2, padding=2), nn.BatchNorm2d(c), nn.ReLU(),
            nn.Conv2d(c, 2 * c, 3, padding=1), nn.BatchNorm2d(2 * c), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(2 * c, 2 * c, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(2 * c, GRADES))

    def forward(self, x):
        return self.net(x)


def train_epoch(model, loader, opt, steps):
    feeder = BatchFeeder(loader)
    model.train()
    loss_sum = 0.0
    for _ in range(steps):
        x, y = feeder.next()
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        loss_sum += loss.item()
    return loss_sum / steps


def main(epochs=10, steps=16):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        n = prepare(root)
        loader = DataLoader(FundusVolumes(root, n), batch_size=16, sampler=VolumeOrder(n), num_workers=2)
        model = Grader()
        opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        sched = torch.optim.lr_scheduler.StepLR(opt, 3, 0.5)
        for epoch in range(epochs):
            t0 = time.time()
            loss = train_epoch(model, loader, opt, steps)
            sched.step()
            print(f"epoch {epoch} loss {loss:.4f} lr {sched.get_last_lr()[0]:.4f} {time.time() - t0:.1f}s", flush=True)
            torch.save(model.state_dict(), root / "grader.pt")


if __name__ == "__main__":
    main()
