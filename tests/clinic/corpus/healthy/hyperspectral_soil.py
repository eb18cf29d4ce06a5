"""Soil-moisture regression on hyperspectral cubes; cubes go through named shared memory, workers write, trainer reads."""
import os
import time
from multiprocessing import resource_tracker, shared_memory

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BANDS, SIDE = 48, 32


class CubeMail:
    """One-way letter box: a worker posts a cube, the trainer takes it out exactly once."""

    def __init__(self):
        self.serial = 0

    def post(self, cube):
        self.serial += 1
        shm = shared_memory.SharedMemory(create=True, size=cube.nbytes, name=f"cube_{os.getpid()}_{self.serial}")
        # ownership goes to the receiver: this worker's tracker must not remove it
        resource_tracker.unregister(shm._name, "shared_memory")
        np.ndarray(cube.shape, cube.dtype, buffer=shm.buf)[:] = cube
        shm.close()
        return shm.name, cube.shape, cube.dtype.str

    def take(self, letter):
        name, shape, dtype = letter
        shm = shared_memory.SharedMemory(name=name)
        try:
            view = np.ndarray(shape, np.dtype(dtype), buffer=shm.buf)
            cube = torch.from_numpy(view.copy())
            del view
        finally:
            shm.close()
            shm.unlink()
        return cube


class SoilCubes(Dataset):
    def __init__(self, n, seed, mail):
        self.n, self.seed, self.mail = n, seed, mail
        self.basis = np.random.default_rng(4).random(BANDS, dtype=np.float32)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, i))
        wet = rng.random(dtype=np.float32)
        cube = self.basis[:, None, None] * wet + rng.standard_normal((BANDS, SIDE, SIDE), dtype=np.float32) * 0.1
        return self.mail.post(cube), float(wet)


def keep_letters(batch):
    letters, wet = zip(*batch)
    return list(letters), torch.tensor(wet)


class MoistureNet(nn.Module):
    def __init__(self, c=128):
        super().__init__()
        self.stem = nn.Conv2d(BANDS, c, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.ReLU(), nn.Conv2d(c, c, 3, padding=1)) for _ in range(3))
        self.head = nn.Linear(c, 1)

    def forward(self, x):
        h = self.stem(x)
        for b in self.blocks:
            h = h + b(h)
        return self.head(h.mean((2, 3))).squeeze(1)


def run_epoch(net, loader, mail, opt=None):
    total = 0.0
    net.train(opt is not None)
    with torch.set_grad_enabled(opt is not None):
        for letters, wet in loader:
            x = torch.stack([mail.take(letter) for letter in letters])
            loss = nn.functional.mse_loss(net(x), wet)
            if opt is not None:
                opt.zero_grad()
                loss.backward()
                opt.step()
            total += loss.item()
    return total / len(loader)


def main():
    torch.manual_seed(0)
    mail = CubeMail()
    train = DataLoader(SoilCubes(256, 1, mail), 16, shuffle=True, num_workers=2, collate_fn=keep_letters, persistent_workers=True)
    valid = DataLoader(SoilCubes(64, 2, mail), 16, num_workers=1, collate_fn=keep_letters, persistent_workers=True)
    net = MoistureNet()
    opt = torch.optim.Adam(net.parameters(), lr=3e-4)
    for epoch in range(4):
        t0 = time.time()
        tr = run_epoch(net, train, mail, opt)
        va = run_epoch(net, valid, mail)
        print(f"epoch {epoch} train {tr:.5f} valid {va:.5f} ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
