"""Speaker-command model: one-second clips, log-spectrogram front end, small CNN."""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, get_worker_info

SR = 16000


@dataclass
class Config:
    clips: int = 1000
    classes: int = 6
    batch_size: int = 24
    epochs: int = 4
    workers: int = 2
    lr: float = 2e-3
    seed: int = 1234


class ClipAugment:
    """Time shift, gain and background noise, applied in that order."""

    def __init__(self, max_shift=0.2, gain_db=6.0, noise=0.02, seed=0):
        self.max_shift = int(max_shift * SR)
        self.gain_db = gain_db
        self.noise = noise
        self.reseed(seed)

    def reseed(self, *entropy):
        self.rng = np.random.default_rng(list(entropy))

    def __call__(self, wav):
        wav = np.roll(wav, self.rng.integers(-self.max_shift, self.max_shift))
        wav = wav * 10 ** (self.rng.uniform(-self.gain_db, self.gain_db) / 20)
        return wav + self.noise * self.rng.standard_normal(wav.shape[0])


def log_spec(wav, n_fft=512, hop=40, bands=64):
    n = (len(wav) - n_fft) // hop
    frames = np.lib.stride_tricks.sliding_window_view(wav, n_fft)[: n * hop : hop] * np.hanning(n_fft)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    pooled = power[:, :256].reshape(n, bands, -1).mean(-1)
    pooled = pooled[: n // 6 * 6].reshape(-1, 6, bands).mean(1)
    return np.log(pooled + 1e-6).astype(np.float32)


class CommandClips(Dataset):
    def __init__(self, cfg, transform=None):
        gen = np.random.default_rng(cfg.seed)
        t = np.arange(SR) / SR
        self.labels = gen.integers(0, cfg.classes, cfg.clips)
        base = 200 + 150 * self.labels + gen.normal(0, 15, cfg.clips)
        self.clips = [np.sin(2 * np.pi * f * t * (1 + 0.1 * t)).astype(np.float32) for f in base]
        self.transform = transform

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, i):
        wav = self.clips[i].astype(np.float64)
        if self.transform is not None:
            wav = self.transform(wav)
        return torch.from_numpy(log_spec(wav))[None], int(self.labels[i])


def seed_augmentation(worker_id):
    info = get_worker_info()
    info.dataset.dataset.transform.reseed(info.seed)      # base seed of this epoch + worker id


class CommandNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(),
            nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, classes))

    def forward(self, x):
        return self.body((x + 4) / 4)


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    augmented = CommandClips(cfg, ClipAugment(seed=cfg.seed))
    clean = CommandClips(cfg)
    cut = int(0.85 * cfg.clips)
    train = DataLoader(Subset(augmented, range(cut)), cfg.batch_size, shuffle=True, num_workers=cfg.workers,
                       worker_init_fn=seed_augmentation)
    val = DataLoader(Subset(clean, range(cut, cfg.clips)), cfg.batch_size, num_workers=2, persistent_workers=True)
    net = CommandNet(cfg.classes)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        net.train()
        total = 0.0
        for x, y in train:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(y)
        net.eval()
        with torch.no_grad():
            hits = sum((net(x).argmax(1) == y).sum().item() for x, y in val)
        print(f"epoch {epoch}: train loss {total / cut:.3f}  val acc {hits / (cfg.clips - cut):.3f}", flush=True)


if __name__ == "__main__":
    main()
