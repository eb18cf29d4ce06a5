# cause: thread-oversubscription
# also: transform-bound, not-fed-fast-enough
"""Speech denoising; mixtures are factorised on the fly."""
import functools
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Audio:
    clips: int = 160
    length: int = 16384
    parts: int = 16
    fft: int = 256


@dataclass
class Compute:
    workers: int = 2
    intra_op: int = 12
    batch: int = 10
    epochs: int = 2


class Mixtures(Dataset):
    def __init__(self, audio, compute):
        self.audio, self.compute, self.bank = audio, compute, None

    def __len__(self):
        return self.audio.clips

    def _prepare(self):
        torch.set_num_threads(self.compute.intra_op)
        self.bank = torch.rand(self.audio.fft // 2 + 1, self.audio.parts, generator=torch.Generator().manual_seed(3))
        self.window = torch.hann_window(self.audio.fft)

    def __getitem__(self, i):
        if self.bank is None:
            self._prepare()
        g = torch.Generator().manual_seed(i)
        t = torch.arange(self.audio.length) / 16000
        clean = torch.sin(2 * torch.pi * (120 + 3 * i) * t)
        noisy = clean + 0.3 * torch.randn(t.shape, generator=g)
        v = torch.stft(noisy, self.audio.fft, window=self.window, return_complex=True).abs() + 1e-3
        w, h = self.bank.clone(), torch.ones(self.audio.parts, v.shape[1])
        for _ in range(15):
            h = h * (w.T @ v) / (w.T @ w @ h)
            w = w * (v @ h.T) / (w @ (h @ h.T))
        spec = torch.stft(clean, self.audio.fft, window=self.window, return_complex=True).abs()
        return w, spec.mean(1)


def mse(weight, a, b):
    return weight * (a - b).square().mean()


def main():
    audio, compute = Audio(), Compute()
    torch.set_num_threads(1)
    loader = DataLoader(Mixtures(audio, compute), compute.batch, num_workers=compute.workers, shuffle=True, persistent_workers=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(audio.parts * (audio.fft // 2 + 1), 64), nn.ReLU(), nn.Linear(64, audio.fft // 2 + 1))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = functools.partial(mse, 0.5)
    for epoch in range(compute.epochs):
        t = time.time()
        for parts, spec in loader:
            loss = criterion(model(parts), spec)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print("epoch %d loss %.3f, %.1f clips/s" % (epoch, loss.item(), audio.clips / (time.time() - t)), flush=True)


if __name__ == "__main__":
    main()
