# cause: wrong-length
"""Wear-level regression for pumps from vibration recordings of different lengths."""
import time
from dataclasses import dataclass, asdict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass(frozen=True)
class PumpConfig:
    pumps: int = 18
    window: int = 256
    overlap: float = 0.75
    channels: int = 3
    batch_size: int = 48
    num_workers: int = 2
    epochs: int = 8
    lr: float = 1e-3

    @property
    def stride(self):
        return int(self.window * (1 - self.overlap))


@dataclass
class Recording:
    pump: str
    signal: np.ndarray
    wear: float

    @property
    def duration(self):
        return self.signal.shape[1]


def record_fleet(cfg, seed):
    rng = np.random.default_rng(seed)
    fleet = []
    for k in range(cfg.pumps):
        wear = float(rng.uniform(0, 1))
        n = int(rng.integers(12_000, 20_000))
        t = np.arange(n) / 1000.0
        tone = np.stack([np.sin(2 * np.pi * (50 + 5 * c) * t) for c in range(cfg.channels)])
        rattle = wear * rng.normal(size=(cfg.channels, n))
        fleet.append(Recording(f"P{k:02d}", (tone + rattle).astype(np.float32), wear))
    return fleet


class Normalize:
    def __init__(self, recordings):
        joined = np.concatenate([r.signal[:, ::50] for r in recordings], axis=1)
        self.mean = joined.mean(axis=1, keepdims=True)
        self.std = joined.std(axis=1, keepdims=True) + 1e-6

    def __call__(self, x):
        return (x - self.mean) / self.std


class VibrationWindows(Dataset):
    """Overlapping windows over all recordings, addressed by one flat index."""

    def __init__(self, recordings, cfg, normalize):
        self.recordings = recordings
        self.window = cfg.window
        self.normalize = normalize
        self.windows = []
        for r, rec in enumerate(recordings):
            for start in range(0, rec.duration - cfg.window + 1, cfg.stride):
                self.windows.append((r, start))

    def __len__(self):
        return sum(rec.duration // self.window for rec in self.recordings)

    def __getitem__(self, i):
        r, start = self.windows[i]
        rec = self.recordings[r]
        x = self.normalize(rec.signal[:, start:start + self.window])
        spectrum = np.abs(np.fft.rfft(x, axis=1))[:, :64]
        return torch.from_numpy(x), torch.from_numpy(spectrum.astype(np.float32)), torch.tensor(rec.wear)


class WearNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(cfg.channels, 32, 9, padding=4), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(32, 64, 9, padding=4), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(64, 128, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.spec = nn.Sequential(nn.Flatten(), nn.Linear(cfg.channels * 64, 128), nn.ReLU())
        self.out = nn.Linear(256, 1)

    def forward(self, x, s):
        return self.out(torch.cat([self.conv(x), self.spec(s)], dim=1)).squeeze(1)


class WearTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        fleet = record_fleet(cfg, seed=3)
        train, held_out = fleet[:-3], fleet[-3:]
        norm = Normalize(train)
        self.train_data = VibrationWindows(train, cfg, norm)
        self.loaders = {
            "train": self._loader(self.train_data, shuffle=True),
            "test": self._loader(VibrationWindows(held_out, cfg, norm), shuffle=False),
        }
        self.net = WearNet(cfg)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr)
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(self.opt, patience=2)

    def _loader(self, data, shuffle):
        return DataLoader(data, batch_size=self.cfg.batch_size, shuffle=shuffle,
                          num_workers=self.cfg.num_workers, persistent_workers=True)

    def run(self, phase):
        training = phase == "train"
        self.net.train(training)
        err, n = 0.0, 0
        with torch.set_grad_enabled(training):
            for x, s, wear in self.loaders[phase]:
                pred = self.net(x, s)
                loss = F.mse_loss(pred, wear)
                if training:
                    self.opt.zero_grad()
                    loss.backward()
                    self.opt.step()
                err += loss.item() * len(wear)
                n += len(wear)
        return err / n

    def fit(self):
        print("config", asdict(self.cfg))
        for epoch in range(1, self.cfg.epochs + 1):
            t0 = time.perf_counter()
            train, test = self.run("train"), self.run("test")
            self.plateau.step(test)
            print(f"[{epoch:02d}] train mse {train:.4f}  test mse {test:.4f}  {time.perf_counter() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    WearTrainer(PumpConfig()).fit()
