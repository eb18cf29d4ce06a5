"""Wave height from buoy spectra; the uplink sometimes wants a second attempt, and the feature bank keeps to one thread."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Busy(Exception):
    pass


class Uplink:
    def __init__(self, samples):
        self.samples = samples

    def get(self, n, attempt):
        if n % 23 == 0 and attempt == 0:
            raise Busy(n)
        time.sleep(0.003)
        rng = np.random.default_rng(n)
        height = rng.random() * 4
        t = np.arange(self.samples, dtype=np.float32)
        return height * np.sin(t / (8 + height)) + rng.normal(size=self.samples) * 0.2, height


def with_backoff(call, n, first=0.01, tries=5):
    wait = first
    for attempt in range(tries):
        try:
            return call(n, attempt)
        except Busy:
            time.sleep(wait)
            wait *= 2
    raise OSError(f"gave up on {n}")


class Buoys(Dataset):
    def __init__(self, uplink, numbers):
        self.uplink, self.numbers, self.mix = uplink, numbers, None

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, i):
        if self.mix is None:
            self.mix = torch.randn(256, 96, generator=torch.Generator().manual_seed(0)) / 16
        wave, height = with_backoff(self.uplink.get, self.numbers[i])
        frames = torch.from_numpy(wave.astype(np.float32)).unfold(0, 256, 64)
        return (frames @ self.mix).abs().mean(0).log1p(), torch.tensor(height, dtype=torch.float32)


def one_thread(worker):
    torch.set_num_threads(1)


@torch.no_grad()
def error(net, loader):
    return torch.cat([(net(x)[:, 0] - y).abs() for x, y in loader]).mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--buoys", type=int, default=700)
    p.add_argument("--batch", type=int, default=10)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    uplink = Uplink(4096)
    train = DataLoader(Buoys(uplink, range(a.buoys)), a.batch, shuffle=True, num_workers=a.workers, worker_init_fn=one_thread)
    held = DataLoader(Buoys(uplink, range(10_000, 10_024)), a.batch)
    net = nn.Sequential(nn.Linear(96, 24), nn.GELU(), nn.Linear(24, 1))
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    began = time.time()
    for step, (x, y) in enumerate(train):
        loss = nn.functional.mse_loss(net(x)[:, 0], y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.055)  # ocean model in the loop
        if step % 15 == 0:
            print(f"step {step}/{len(train)} loss {loss.item():.4f} {time.time() - began:.1f}s", flush=True)
    print(f"held-out error {error(net, held):.3f} m")


if __name__ == "__main__":
    main()
