# cause: prefetch-memory, shm-exhausted
# limits: shm=64M
"""Denoising of mass spectra, simulated scan by scan."""
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Run:
    scans: int = 2400
    bins: int = 8192
    batch: int = 32
    workers: int = 2
    buffered: int = 100
    steps: int = 60


class Spectra(Dataset):
    def __init__(self, run: Run):
        self.run = run

    def __len__(self):
        return self.run.scans

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        clean = np.zeros(self.run.bins, np.float32)
        clean[rng.integers(0, self.run.bins, 60)] = rng.gamma(2.0, 1.0, 60)
        clean = np.convolve(clean, np.hanning(7).astype(np.float32), "same")
        noisy = clean + 0.2 * rng.standard_normal(self.run.bins, dtype=np.float32)
        return torch.from_numpy(noisy), torch.from_numpy(clean)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, 8, 9, padding=4), nn.ReLU(), nn.Conv1d(8, 1, 9, padding=4))

    def forward(self, x):
        return self.net(x[:, None]).squeeze(1)


class Meter:
    def __init__(self):
        self.t = time.perf_counter()
        self.waiting = 0.0

    def wrap(self, iterable):
        it = iter(iterable)
        while True:
            t = time.perf_counter()
            try:
                item = next(it)
            except StopIteration:
                return
            self.waiting += time.perf_counter() - t
            yield item


def main():
    run = Run()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Spectra(run), run.batch, shuffle=True, num_workers=run.workers, prefetch_factor=run.buffered)
    net, meter = Denoiser(), Meter()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for step, (x, y) in enumerate(meter.wrap(loader)):
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.1)  # metrics are pushed to the dashboard synchronously
        if step % 10 == 0:
            print(f"step {step} mse {loss.item():.4f} waited {meter.waiting:.1f}s", flush=True)
        if step == run.steps:
            break


if __name__ == "__main__":
    main()
