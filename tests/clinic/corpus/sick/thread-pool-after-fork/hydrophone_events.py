# cause: thread-pool-after-fork
"""Whale call detector: filterbank energies from raw hydrophone recordings."""
import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class Hydrophone(Dataset):
    RATE = 8000

    def __init__(self, clips, seconds, bands=24):
        g = torch.Generator().manual_seed(17)
        self.n = self.RATE * seconds
        self.seeds = torch.randint(1 << 30, (clips,), generator=g).tolist()
        self.call = (torch.rand(clips, generator=g) < 0.4).tolist()
        t = torch.arange(256) / self.RATE
        freqs = torch.logspace(math.log10(60), math.log10(3500), bands)
        self.bank = torch.sin(2 * math.pi * freqs[:, None] * t) * torch.hann_window(256)
        self.mean, self.std = torch.zeros(()), torch.ones(())

    def __len__(self):
        return len(self.seeds)

    def waveform(self, i):
        g = torch.Generator().manual_seed(self.seeds[i])
        x = torch.randn(self.n, generator=g)
        if self.call[i]:
            a = int(torch.randint(self.n // 2, (), generator=g))
            seg = torch.arange(self.n // 4) / self.RATE
            x[a:a + len(seg)] += 1.5 * torch.sin(2 * math.pi * (200 + 120 * seg) * seg)
        return x

    def energies(self, x):
        frames = x.unfold(0, 256, 64)
        power = (frames * self.bank[0].abs()).square()
        env = power.sqrt().log1p().mean(1)
        proj = frames @ self.bank.T
        return torch.cat([proj.abs().log1p(), env[:, None]], 1)

    def fit_scaler(self, idx):
        feats = torch.stack([self.energies(self.waveform(i)) for i in idx])
        self.mean, self.std = feats.mean((0, 1)), feats.std((0, 1)) + 1e-5

    def __getitem__(self, i):
        f = (self.energies(self.waveform(i)) - self.mean) / self.std
        return f.T.contiguous(), float(self.call[i])


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(25, 16, 9, stride=4), nn.ReLU(), nn.Conv1d(16, 16, 5, stride=2), nn.ReLU())
        self.fc = nn.Linear(16, 1)

    def forward(self, x):
        return self.fc(self.conv(x).amax(-1)).squeeze(-1)


class WorkerSetup:
    """Gives every loader process the number of cores the feature code was tuned for."""

    def __init__(self, threads):
        self.threads = threads

    def __call__(self, worker_id):
        torch.set_num_threads(self.threads)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clips", type=int, default=240)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=3)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)

    data = Hydrophone(args.clips, seconds=15)
    split = int(0.85 * len(data))
    data.fit_scaler(range(0, split, 20))
    setup = WorkerSetup(args.threads)
    train = DataLoader(Subset(data, range(split)), batch_size=12, shuffle=True, num_workers=2, worker_init_fn=setup)
    val = DataLoader(Subset(data, range(split, len(data))), batch_size=12, num_workers=2, worker_init_fn=setup)

    net = Detector()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        net.train()
        for x, y in train:
            loss = nn.functional.binary_cross_entropy_with_logits(net(x), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            hit = sum(((net(x) > 0) == (y > 0.5)).sum().item() for x, y in val)
        print(f"epoch {epoch}: loss {loss.item():.3f} val acc {hit / len(val.dataset):.3f}", flush=True)


if __name__ == "__main__":
    main()
