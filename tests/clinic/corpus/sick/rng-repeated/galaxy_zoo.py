# cause: rng-repeated
# also: lock-serialises-workers, not-fed-fast-enough
"""Galaxy morphology with rotation and noise; frames are read from the observatory's spool."""
import multiprocessing as mp
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Augment:
    def __init__(self, seed, sigma):
        self.rng = np.random.default_rng(seed)
        self.sigma = sigma

    def __call__(self, frame):
        frame = np.rot90(frame, int(self.rng.integers(4)))
        gain = self.rng.normal(1.0, 0.1)
        return frame * gain + self.rng.normal(0, self.sigma, frame.shape)


class Spool:
    def __init__(self, folder):
        self.folder = folder
        self.busy = mp.RLock()

    def frame(self, i):
        with self.busy:
            time.sleep(0.006)
            return np.load(os.path.join(self.folder, "%04d.npy" % i))


class Galaxies(Dataset):
    def __init__(self, spool, n, augment):
        self.spool, self.n, self.augment = spool, n, augment

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = self.augment(self.spool.frame(i))
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))[None], i % 3


def observe(folder, n):
    yy, xx = np.mgrid[-1:1:32j, -1:1:32j]
    r, th = np.hypot(yy, xx), np.arctan2(yy, xx)
    for i in range(n):
        arms = i % 3
        np.save(os.path.join(folder, "%04d.npy" % i), (np.exp(-4 * r) * (1 + 0.7 * np.cos(arms * th + 6 * r))).astype(np.float32))


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        observe(folder, 320)
        data = Galaxies(Spool(folder), 320, Augment(1234, 0.02))
        loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=4)
        net = nn.Sequential(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 3))
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        for epoch in range(2):
            t, good = time.time(), 0
            for x, y in loader:
                out = net(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                good += int((out.argmax(1) == y).sum())
            print("epoch %d accuracy %.2f %.1f s" % (epoch, good / 320, time.time() - t), flush=True)


if __name__ == "__main__":
    main()
