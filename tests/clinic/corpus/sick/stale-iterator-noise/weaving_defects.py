# cause: stale-iterator-noise
"""Textile defect detector with quick look-ahead validation: only a few batches of the test roll are scored per epoch."""
import gc
import logging

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
log = logging.getLogger("weave")


class FabricRoll(Dataset):
    def __init__(self, metres, seed):
        self.metres, self.seed = metres, seed

    def __len__(self):
        return self.metres

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, i))
        u, v = np.mgrid[0:96, 0:96]
        cloth = np.sin(u * 0.9) * np.sin(v * 1.1) + 0.3 * rng.standard_normal((96, 96))
        y = int(rng.random() < 0.4)
        if y:
            cloth[:, rng.integers(4, 90):][:, :3] = 0
        f = np.abs(np.fft.fftshift(np.fft.fft2(cloth)))
        for _ in range(4):
            f = (f + np.roll(f, 1, 0) + np.roll(f, 1, 1)) / 3
        return torch.from_numpy(np.log1p(f[::3, ::3]).astype(np.float32)), y


class Feed:
    """Counts what it hands out and tells a progress hook."""

    def __init__(self, loader, limit=None):
        self.limit = limit
        self.batches = iter(loader)
        self.taken = 0
        self.hook = self.progress

    def progress(self):
        if self.taken % 20 == 0:
            log.info("%d batches", self.taken)

    def __iter__(self):
        for batch in self.batches:
            yield batch
            self.taken += 1
            self.hook()
            if self.limit and self.taken >= self.limit:
                return


def tidy(worker_id):
    gc.collect()
    np.random.seed(torch.initial_seed() % 2**32)


class Inspector:
    def __init__(self):
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(1024), nn.Linear(1024, 48), nn.ReLU(), nn.Linear(48, 2))
        self.opt = torch.optim.Adam(self.net.parameters(), 1e-3)
        kw = dict(num_workers=2, worker_init_fn=tidy)
        self.train_dl = DataLoader(FabricRoll(640, 1), 16, shuffle=True, **kw)
        self.test_dl = DataLoader(FabricRoll(640, 2), 16, shuffle=True, **kw)

    def fit_one(self):
        self.net.train()
        for x, y in Feed(self.train_dl):
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    @torch.no_grad()
    def glance(self, batches=6):
        self.net.eval()
        return float(np.mean([(self.net(x).argmax(1) == y).float().mean().item() for x, y in Feed(self.test_dl, batches)]))


def main():
    ins = Inspector()
    for epoch in range(4):
        before = ins.glance()
        loss = ins.fit_one()
        log.info("epoch %d: accuracy before %.3f, loss %.3f, after %.3f", epoch, before, loss, ins.glance())


if __name__ == "__main__":
    main()
