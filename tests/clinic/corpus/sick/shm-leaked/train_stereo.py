# cause: shm-leaked
# also: shm-exhausted
# limits: shm=256M
"""Stereo matching; decoded pairs travel as named segments, only the names go through the queue."""
import argparse
from multiprocessing import resource_tracker, shared_memory

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Parcel:
    """Reference to an array that lives in a named segment."""

    __slots__ = ("name", "shape")

    def __init__(self, name, shape):
        self.name, self.shape = name, shape

    def __getstate__(self):
        return self.name, self.shape

    def __setstate__(self, state):
        self.name, self.shape = state

    @classmethod
    def wrap(cls, array):
        seg = shared_memory.SharedMemory(create=True, size=array.nbytes)
        np.ndarray(array.shape, array.dtype, buffer=seg.buf)[:] = array
        parcel = cls(seg.name, array.shape)
        seg.close()
        resource_tracker.unregister(seg._name, "shared_memory")  # the receiver takes over
        return parcel

    def unwrap(self):
        seg = shared_memory.SharedMemory(name=self.name)
        resource_tracker.unregister(seg._name, "shared_memory")
        out = torch.from_numpy(np.ndarray(self.shape, np.float32, buffer=seg.buf).copy())
        seg.close()
        return out


class Pairs(Dataset):
    def __init__(self, n, height, width):
        self.n, self.h, self.w = n, height, width

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        left = rng.random((self.h, self.w + 16), dtype=np.float32)
        d = int(rng.integers(1, 16))
        return np.stack([left[:, 16:], left[:, 16 - d:self.w + 16 - d]]), d / 16


def ship(samples):
    return Parcel.wrap(np.stack([s[0] for s in samples])), torch.tensor([s[1] for s in samples])


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(2, 12, 7, 4), nn.ReLU(), nn.Conv2d(12, 16, 5, 4), nn.ReLU(),
                               nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 1), nn.Sigmoid())

    def forward(self, x):
        return self.f(x).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pairs", type=int, default=1600)
    ap.add_argument("--epochs", type=int, default=2)
    a = ap.parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(Pairs(a.pairs, 192, 256), 8, shuffle=True, num_workers=2, collate_fn=ship)
    model = Matcher()
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(a.epochs):
        for step, (parcel, disparity) in enumerate(loader):
            loss = nn.functional.l1_loss(model(parcel.unwrap()), disparity.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} l1 {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
