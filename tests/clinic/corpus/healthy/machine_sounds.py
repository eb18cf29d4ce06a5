"""Anomaly classes from machine sounds; the collate object mixes two clips and adds hum."""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, get_worker_info


class MachineClips(Dataset):
    def __init__(self, machine, n, length=9000):
        self.machine, self.n, self.length = machine, n, length
        self.fault = np.random.default_rng(machine).integers(0, 4, n)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        t = np.arange(self.length) / 8000
        wave = np.zeros(self.length)
        f0 = 60 + 9 * self.machine
        for k in range(1, 14):
            wave += np.sin(2 * np.pi * k * f0 * t + 0.7 * int(self.fault[i]) * np.sin(2 * np.pi * 3 * t + i)) / k
        return torch.from_numpy(wave.astype(np.float32)), int(self.fault[i])


class MixCollate:
    """Mix-up inside the batch. The generator belongs to the process that uses it."""

    def __init__(self, alpha=0.4):
        self.alpha = alpha
        self._owner, self._rng = None, None

    @property
    def rng(self):
        info = get_worker_info()
        owner = None if info is None else (info.id, info.seed)
        if self._rng is None or owner != self._owner:
            seed = torch.initial_seed() if info is None else info.seed
            self._owner, self._rng = owner, np.random.default_rng(seed)
        return self._rng

    def __call__(self, items):
        x = torch.stack([w for w, _ in items])
        y = F.one_hot(torch.tensor([c for _, c in items]), 4).float()
        perm = torch.from_numpy(self.rng.permutation(len(x)))
        lam = float(self.rng.beta(self.alpha, self.alpha))
        hum = 0.05 * torch.from_numpy(self.rng.standard_normal(x.shape, dtype=np.float32))
        return lam * x + (1 - lam) * x[perm] + hum, lam * y + (1 - lam) * y[perm]


class HumNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("win", torch.hann_window(256))
        self.f = nn.Sequential(nn.Conv1d(129, 320, 5, padding=2), nn.GELU(), nn.Conv1d(320, 320, 5, padding=2), nn.GELU(),
                               nn.Conv1d(320, 320, 5, padding=2), nn.GELU())
        self.out = nn.Linear(320, 4)

    def forward(self, x):
        s = torch.stft(x, 256, 96, window=self.win, return_complex=True).abs().log1p()
        return self.out(self.f(s).mean(-1))


class SoundModule:
    def __init__(self, workers=2, batch=20):
        self.workers, self.batch = workers, batch
        self.model = HumNet()
        self.opt = torch.optim.Adam(self.model.parameters(), 5e-4)

    def train_dataloader(self):
        parts = ConcatDataset([MachineClips(m, 90) for m in range(5)])
        return DataLoader(parts, self.batch, shuffle=True, num_workers=self.workers, collate_fn=MixCollate(), drop_last=True)

    def val_dataloader(self):
        return DataLoader(MachineClips(40, 80), self.batch, num_workers=self.workers)

    def training_step(self, batch):
        x, y = batch
        loss = F.cross_entropy(self.model(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def validation_step(self, batch):
        x, y = batch
        return (self.model(x).argmax(1) == y).float().mean().item()


def fit(module, epochs):
    train, val = module.train_dataloader(), module.val_dataloader()
    for e in range(epochs):
        loss = np.mean([module.training_step(b) for b in train])
        acc = np.mean([module.validation_step(b) for b in val])
        print(f"{e}: loss {loss:.4f} acc {acc:.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    fit(SoundModule(), 4)
