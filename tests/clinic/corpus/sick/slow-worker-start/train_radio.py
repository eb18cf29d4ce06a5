# cause: slow-worker-start
# also: workers-restarted
"""Modulation recognition; several short epochs with a fresh validation pass each."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = ("bpsk", "qpsk", "psk8")


class Bursts(Dataset):
    def __init__(self, count, length, snr_db):
        self.count, self.length, self.snr = count, length, 10 ** (snr_db / 10)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        kind = i % len(KINDS)
        rng = np.random.default_rng(torch.randint(0, 2**31 - 1, ()).item())
        m = 2 ** (kind + 1)
        symbols = np.exp(2j * np.pi * rng.integers(0, m, self.length // 8) / m).repeat(8)
        taps = np.hanning(9) / np.hanning(9).sum()
        wave = np.convolve(symbols, taps, mode="same")
        wave = wave * np.exp(1j * rng.uniform(0, 0.02) * np.arange(self.length))
        noise = rng.standard_normal((2, self.length)) / np.sqrt(2 * self.snr)
        time.sleep(0.002)
        return torch.tensor(np.stack([wave.real, wave.imag]) + noise, dtype=torch.float32), kind


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv1d(2, 24, 15, 4), nn.ReLU(), nn.Conv1d(24, 32, 7, 4), nn.ReLU(),
                               nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, len(KINDS)))

    def forward(self, x):
        return self.f(x)


class Session:
    def __init__(self, args):
        common = dict(batch_size=args.batch, num_workers=args.workers, multiprocessing_context="spawn")
        self.train_loader = DataLoader(Bursts(args.bursts, 512, 8), shuffle=True, **common)
        self.val_loader = DataLoader(Bursts(args.bursts // 4, 512, 8), batch_size=args.batch)
        self.model = Recogniser()
        self.opt = torch.optim.Adam(self.model.parameters(), 2e-3)

    def epoch(self):
        self.model.train()
        for x, y in self.train_loader:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        right = sum((self.model(x).argmax(1) == y).sum().item() for x, y in self.val_loader)
        return right / len(self.val_loader.dataset)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--bursts", type=int, default=240)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    session = Session(a)
    for e in range(a.epochs):
        t = time.perf_counter()
        session.epoch()
        t = time.perf_counter() - t
        print(f"epoch {e}: {t:.1f}s, accuracy {session.validate():.3f}", flush=True)


if __name__ == "__main__":
    main()
