"""Road segmentation, step-based schedule: an endless stream of batches is prefetched by a thread in the main process."""
import queue
import threading
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

MAX_STEPS = 160


class AerialTiles(Dataset):
    def __init__(self, count=480, side=64):
        self.count, self.side = count, side

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        scene = np.random.default_rng(1000 + i)          # the tile's content is a function of its number
        tile = scene.normal(0.4, 0.1, (3, self.side, self.side)).astype(np.float32)
        mask = np.zeros((self.side, self.side), np.int64)
        yy, xx = np.mgrid[:self.side, :self.side]
        for _ in range(3):
            a, b = scene.uniform(-1, 1), scene.uniform(0, self.side)
            mask[np.abs(a * xx + b - yy) < 2.5] = 1
        tile += mask * 0.3
        k = torch.randint(4, ()).item()                    # augmentation from the worker's own stream
        return np.rot90(tile, k, (1, 2)).copy(), np.rot90(mask, k).copy()


class UNetSmall(nn.Module):
    def __init__(self, f=16):
        super().__init__()
        conv = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU())
        self.d1, self.d2, self.mid = conv(3, f), conv(f, 2 * f), conv(2 * f, 4 * f)
        self.u2, self.u1 = conv(6 * f, 2 * f), conv(3 * f, f)
        self.out = nn.Conv2d(f, 2, 1)
        self.pool, self.up = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(self.pool(a))
        c = self.mid(self.pool(b))
        b = self.u2(torch.cat([self.up(c), b], 1))
        return self.out(self.u1(torch.cat([self.up(b), a], 1)))


def forever(loader):
    while True:
        yield from loader


class Prefetcher:
    """Pulls batches in a thread so that the next one is ready while the model computes."""

    def __init__(self, source, depth=3):
        self.queue = queue.Queue(depth)
        self.source = source
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._pull, daemon=True)
        self.thread.start()

    def _pull(self):
        try:
            for item in self.source:
                while not self.stop.is_set():
                    try:
                        self.queue.put((item, None), timeout=0.2)
                        break
                    except queue.Full:
                        continue
                if self.stop.is_set():
                    return
        except BaseException as error:
            self.queue.put((None, error))

    def __next__(self):
        item, error = self.queue.get()
        if error is not None:
            raise error
        return item

    def close(self):
        self.stop.set()
        self.thread.join()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(AerialTiles(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True, drop_last=True)
    batches = Prefetcher(forever(loader))
    net = UNetSmall()
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    sched = torch.optim.lr_scheduler.PolynomialLR(opt, MAX_STEPS, power=0.9)
    weight = torch.tensor([0.3, 1.0])
    wait, begin = 0.0, time.time()
    for step in range(1, MAX_STEPS + 1):
        t = time.time()
        x, y = next(batches)
        wait += time.time() - t
        loss = nn.functional.cross_entropy(net(x), y, weight=weight)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.4f} "
                  f"elapsed {time.time() - begin:.1f}s data {wait:.2f}s", flush=True)
    batches.close()


if __name__ == "__main__":
    main()
