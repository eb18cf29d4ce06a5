"""Bin picking with a clutter schedule. The stage lives in shared memory so that long-lived workers follow it."""
import multiprocessing as mp

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCHEDULE = {0: 2, 2: 5, 4: 10}


class Clutter(Dataset):
    def __init__(self, n, px=96, seed=5):
        self.n, self.px, self.seed = n, px, seed
        self.count = mp.Value("i", 1, lock=False)
        self.epoch = mp.Value("i", 0, lock=False)
        self.grid = np.mgrid[0:px, 0:px].astype(np.float32) / px

    def start_epoch(self, epoch):
        self.epoch.value = epoch
        self.count.value = SCHEDULE.get(epoch, self.count.value)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, self.epoch.value, i))
        depth = np.zeros((self.px, self.px), np.float32)
        for _ in range(self.count.value):
            cy, cx, a, b = rng.uniform([0.1, 0.1, 0.05, 0.05], [0.9, 0.9, 0.2, 0.2])
            y, x = self.grid[0] - cy, self.grid[1] - cx
            depth = np.maximum(depth, np.sqrt(np.clip(1 - (x / a) ** 2 - (y / b) ** 2, 0, None)))
        gy, gx = np.gradient(depth)
        img = np.stack([depth, gx, gy])
        for _ in range(12):
            img = (img + np.roll(img, 1, 1) + np.roll(img, 1, 2)) / 3
        return img.astype(np.float32), np.float32(depth.mean()), self.count.value


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 5, 4)
        self.b = nn.Conv2d(8, 8, 3, 2)
        self.c = nn.Linear(8, 1)

    def forward(self, x):
        return self.c(self.b(self.a(x).relu()).relu().mean((2, 3))).squeeze(1)


def train_epoch(net, opt, loader):
    tot, seen = 0.0, set()
    for img, fill, count in loader:
        loss = (net(img) - fill).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        tot += loss.item()
        seen |= set(count.tolist())
    return tot / len(loader), seen


def main():
    torch.manual_seed(0)
    data = Clutter(500)
    loader = DataLoader(data, batch_size=25, shuffle=True, num_workers=2, persistent_workers=True)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    for epoch in range(6):
        data.start_epoch(epoch)
        loss, seen = train_epoch(net, opt, loader)
        print(f"epoch {epoch}: mse {loss:.5f}, objects per scene {sorted(seen)}", flush=True)


if __name__ == "__main__":
    main()
