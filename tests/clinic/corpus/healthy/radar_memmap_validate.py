"""Radar echo classifier over a memory-mapped archive, validated every N steps."""
import os
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SHAPE = (3600, 2, 40, 40)


def build_archive(folder):
    g = np.random.default_rng(2)
    arr = np.lib.format.open_memmap(os.path.join(folder, "echo.npy"), "w+", np.float16, SHAPE)
    labels = g.integers(0, 4, SHAPE[0])
    base = g.normal(size=(4,) + SHAPE[1:]).astype(np.float16)
    noise = g.normal(size=(64,) + SHAPE[1:]).astype(np.float16)
    for i, l in enumerate(labels):
        arr[i] = base[l] + 2 * noise[i % 64]
    arr.flush()
    np.save(os.path.join(folder, "label.npy"), labels)


class EchoArchive(Dataset):
    def __init__(self, folder, rows, noise=0.0):
        self.folder, self.rows, self.noise = folder, np.asarray(rows), noise
        self.labels = np.load(os.path.join(folder, "label.npy"))
        self.echo = np.load(os.path.join(folder, "echo.npy"), mmap_mode="r")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        x = np.array(self.echo[row], dtype=np.float32)       # copy out of the map
        if self.noise:
            x += np.random.normal(0, self.noise, x.shape).astype(np.float32)
        spectrum = np.abs(np.fft.fft2(x)).astype(np.float32) / 40
        return torch.from_numpy(np.concatenate([x, spectrum])), torch.tensor(self.labels[row])


class EchoNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 4))

    def forward(self, x):
        return self.body(x)


@torch.no_grad()
def validate(net, loader):
    net.eval()
    t, wait, right, n = time.time(), 0.0, 0, 0
    for x, y in loader:
        wait += time.time() - t
        right += (net(x).argmax(1) == y).sum().item()
        n += len(y)
        t = time.time()
    net.train()
    return right / n, wait


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = tempfile.mkdtemp(prefix="radar_")
    try:
        build_archive(folder)
        order = np.random.default_rng(0).permutation(SHAPE[0])
        train = DataLoader(EchoArchive(folder, order[:1800], 0.5), 32, shuffle=True, num_workers=1,
                           persistent_workers=True, drop_last=True)
        valid = DataLoader(EchoArchive(folder, order[1800:]), 100, num_workers=2, persistent_workers=True)
        net = EchoNet()
        opt = torch.optim.AdamW(net.parameters(), 1e-3)
        step, wait, begin = 0, 0.0, time.time()
        for epoch in range(3):
            t = time.time()
            for x, y in train:
                wait += time.time() - t
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                step += 1
                if step % 40 == 0:
                    acc, vwait = validate(net, valid)
                    print(f"step {step} loss {loss.item():.3f} val {acc:.3f} elapsed {time.time() - begin:.1f}s "
                          f"data {wait:.2f}s valdata {vwait:.2f}s", flush=True)
                t = time.time()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
