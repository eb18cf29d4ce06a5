"""Magnitude regression from seismograms; augmentation is a pure function of (seed, epoch, index)."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class EpochShuffle(Sampler):
    """Shuffles by epoch and hands the epoch to the dataset as a part of the key."""

    def __init__(self, size, seed):
        self.size, self.seed, self.epoch = size, seed, 0

    def __len__(self):
        return self.size

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        for i in torch.randperm(self.size, generator=g).tolist():
            yield self.epoch, i


class Seismograms(Dataset):
    def __init__(self, events, window=1024, seed=0):
        base = np.random.default_rng(seed)
        self.seed, self.window = seed, window
        self.magnitude = base.uniform(1, 6, events).astype(np.float32)
        self.raw = base.normal(0, 0.3, size=(events, 3, 2400)).astype(np.float32)
        t = np.arange(2400)
        for i, m in enumerate(self.magnitude):
            tail = np.clip(t - 900, 0, None)
            self.raw[i] += np.where(t >= 900, m * np.exp(-tail / (60 * m)) * np.sin(tail / 5), 0).astype(np.float32)

    def __len__(self):
        return len(self.magnitude)

    def generator(self, epoch, index):
        return np.random.default_rng([self.seed, epoch, index])

    def bandpass(self, x, low, high):
        spec = np.fft.rfft(x, n=4096, axis=-1)
        freqs = np.fft.rfftfreq(4096, d=0.01)
        spec *= (freqs > low) & (freqs < high)
        return np.fft.irfft(spec, n=4096, axis=-1)[:, :x.shape[-1]]

    def __getitem__(self, key):
        epoch, index = key
        rng = self.generator(epoch, index)
        wave = self.bandpass(self.raw[index], rng.uniform(0.3, 1.0), rng.uniform(20, 35))
        start = int(rng.integers(300, 850))
        wave = wave[:, start:start + self.window]
        wave = wave + rng.normal(0, 0.1, wave.shape)
        return torch.from_numpy(wave.astype(np.float32)), self.magnitude[index]


class MagnitudeNet(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(3, width, 11, padding=5), nn.ReLU(), nn.Conv1d(width, width, 11, padding=5),
                                 nn.ReLU(), nn.Conv1d(width, width, 11, 2, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(8),
                                 nn.Flatten(), nn.Linear(8 * width, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


class Training:
    def __init__(self, args):
        self.args = args
        data = Seismograms(args.events, seed=args.seed)
        self.sampler = EpochShuffle(len(data), args.seed)
        self.loader = DataLoader(data, batch_size=16, sampler=self.sampler, num_workers=2, persistent_workers=True)
        self.net = MagnitudeNet()
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, 2, 0.5)

    def step(self, wave, magnitude):
        loss = nn.functional.huber_loss(self.net(wave), magnitude)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def run(self):
        for epoch in range(self.args.epochs):
            self.sampler.epoch = epoch
            t0, waited, losses = time.time(), 0.0, []
            mark = time.time()
            for wave, magnitude in self.loader:
                waited += time.time() - mark
                losses.append(self.step(wave, magnitude))
                mark = time.time()
            self.sched.step()
            print(f"epoch {epoch} huber {sum(losses) / len(losses):.3f} {time.time() - t0:.1f}s data {waited:.2f}s",
                  flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--events", type=int, default=1000)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--seed", type=int, default=17)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    Training(args).run()
