"""Global motion regression; frame pairs travel as named segments that the receiver removes."""
import argparse
import time
from multiprocessing import resource_tracker, shared_memory

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Envelope:
    def __init__(self, name, shape):
        self.name, self.shape = name, shape

    @classmethod
    def seal(cls, array):
        seg = shared_memory.SharedMemory(create=True, size=array.nbytes)
        np.ndarray(array.shape, array.dtype, buffer=seg.buf)[:] = array
        name = seg.name
        seg.close()
        return cls(name, array.shape)

    def open(self):
        seg = shared_memory.SharedMemory(name=self.name)
        try:
            return torch.from_numpy(np.ndarray(self.shape, np.float32, buffer=seg.buf).copy())
        finally:
            seg.close()
            seg.unlink()


class Motion(Dataset):
    def __init__(self, n, side):
        self.n, self.side = n, side

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        time.sleep(0.004)  # frame grabber
        big = rng.random((self.side + 16, self.side + 16), dtype=np.float32)
        dy, dx = (int(v) for v in rng.integers(0, 16, 2))
        pair = np.stack([big[8:8 + self.side, 8:8 + self.side], big[dy:dy + self.side, dx:dx + self.side]])
        return pair, ((dy - 8) / 8, (dx - 8) / 8)


def pack(samples):
    return Envelope.seal(np.stack([p for p, _ in samples])), torch.tensor([v for _, v in samples])


class FlowNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(2, 20, 7, 2), nn.ReLU(), nn.Conv2d(20, 32, 5, 2), nn.ReLU(),
                               nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(288, 2))

    def forward(self, x):
        return self.f(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pairs", type=int, default=400)
    ap.add_argument("--epochs", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    resource_tracker.ensure_running()
    loader = DataLoader(Motion(a.pairs, 128), 8, shuffle=True, num_workers=2, collate_fn=pack, persistent_workers=True)
    model = FlowNet()
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(a.epochs):
        total = 0.0
        for envelope, motion in loader:
            loss = nn.functional.smooth_l1_loss(model(envelope.open()), motion)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
