"""Frog call tagging; clips in one array, every augmentation works on a private copy."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SR = 16000


def synth(n, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(2 * SR, dtype=np.float32) / SR
    y = rng.integers(0, 4, n)
    x = np.empty((n, len(t)), np.float32)
    for i, k in enumerate(y):
        x[i] = np.sin(2 * np.pi * 700 * (k + 1) * t) * (np.sin(2 * np.pi * (3 + k) * t) > 0) + rng.normal(0, 0.2, len(t))
    return x, y


class FrogCalls(Dataset):
    def __init__(self, n, seed, train):
        self.x, self.y = synth(n, seed)
        self.train = train
        self.win = np.hanning(512).astype(np.float32)

    def __len__(self):
        return len(self.y)

    def perturb(self, wave):
        wave *= 10 ** ((torch.rand(()).item() * 12 - 9) / 20)
        wave += 0.02 * torch.randn(len(wave)).numpy()
        return wave

    def __getitem__(self, i):
        wave = self.x[i].copy()
        if self.train:
            wave = self.perturb(wave)
        frames = np.lib.stride_tricks.sliding_window_view(wave, 512)[::160] * self.win
        spec = np.log(np.abs(np.fft.rfft(frames, axis=1))[:, :128] + 1e-4)
        return torch.from_numpy(spec.T.astype(np.float32)), int(self.y[i])


class LoaderFactory:
    def __init__(self, workers):
        self.kw = dict(num_workers=workers, persistent_workers=workers > 0)

    def __call__(self, n, seed, train):
        return DataLoader(FrogCalls(n, seed, train), batch_size=20, shuffle=train, **self.kw)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(128)
        self.conv = nn.Conv1d(128, 16, 5, stride=2)
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        return self.out(self.conv(self.norm(x)).relu().mean(2))


def main():
    torch.manual_seed(0)
    make = LoaderFactory(workers=2)
    train, val = make(500, 0, True), make(100, 1, False)
    model = Tagger()
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    for epoch in range(4):
        model.train()
        level = []
        for x, y in train:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            level.append(x.mean().item())
        model.eval()
        with torch.no_grad():
            acc = torch.cat([model(x).argmax(1) == y for x, y in val]).float().mean().item()
        print(f"epoch {epoch} val {acc:.3f} mean level {np.mean(level):+.3f}", flush=True)


if __name__ == "__main__":
    main()
