# cause: thread-oversubscription
"""Reverberation-time regression: dry clips are placed in simulated rooms, then described by band energies."""
import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class RoomBank:
    """Mixes a clip through a bank of room filters. Heavy parts are torch matrix products."""

    def __init__(self, taps, bands, threads):
        if threads:
            torch.set_num_threads(threads)
        g = torch.Generator().manual_seed(0)
        self.mix = torch.randn(taps, taps, generator=g) / taps ** 0.5
        self.bands = torch.randn(taps, bands, generator=g).abs() / taps

    def describe(self, frames, decay):
        wet = frames
        for _ in range(10):
            wet = torch.tanh(wet @ self.mix) * decay + frames * (1 - decay)
        return (wet.square() @ self.bands).log1p()


class Echoes(Dataset):
    def __init__(self, clips, taps, bands, threads):
        self.clips, self.taps, self.args = clips, taps, (taps, bands, threads)
        self.bank = None

    def __len__(self):
        return self.clips

    def __getitem__(self, i):
        if self.bank is None:
            self.bank = RoomBank(*self.args)
        g = torch.Generator().manual_seed(i)
        decay = torch.rand(1, generator=g).item()
        frames = torch.randn(64, self.taps, generator=g) * torch.linspace(1, 0, 64)[:, None]
        return self.bank.describe(frames, decay).mean(0), torch.tensor(decay)


def rms(net, loader):
    with torch.no_grad():
        errors = torch.cat([net(x)[:, 0] - y for x, y in loader])
    return errors.square().mean().sqrt().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--clips", type=int, default=1400)
    p.add_argument("--taps", type=int, default=192)
    p.add_argument("--bands", type=int, default=24)
    p.add_argument("--batch", type=int, default=12)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--intraop", type=int, default=8)
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    train = DataLoader(Echoes(a.clips, a.taps, a.bands, a.intraop), a.batch, shuffle=True, num_workers=a.workers)
    net = nn.Sequential(nn.Linear(a.bands, 24), nn.GELU(), nn.Linear(24, 1))
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    began = time.time()
    for step, (x, y) in enumerate(train):
        loss = nn.functional.mse_loss(net(x)[:, 0], y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step}/{len(train)} loss {loss.item():.4f} {time.time() - began:.1f}s", flush=True)
    print(f"done in {time.time() - began:.1f}s")


if __name__ == "__main__":
    main()
