# cause: rng-repeated
"""Day-ahead load forecasting for a group of substations (quarter-hour readings)."""
import logging
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("forecast")


@dataclass
class ForecastConfig:
    stations: int = 24
    days: int = 45
    history: int = 192
    horizon: int = 96
    batch_size: int = 64
    workers: int = 2
    epochs: int = 5
    hidden: int = 768
    lr: float = 3e-4
    seed: int = 2024
    out_dir: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="load_")))


class Chain:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, x):
        for step in self.steps:
            x = step(x)
        return x


class MagnitudeScale:
    """Multiplies the whole history by one factor."""

    def __init__(self, spread, rng):
        self.spread, self.rng = spread, rng

    def __call__(self, x):
        return x * self.rng.normal(1.0, self.spread)


class SensorJitter:
    def __init__(self, sigma, rng):
        self.sigma, self.rng = sigma, rng

    def __call__(self, x):
        return x + self.rng.normal(0.0, self.sigma, size=x.shape)


class DropSegment:
    """Blanks a stretch of the history, as a telemetry outage would."""

    def __init__(self, longest, rng):
        self.longest, self.rng = longest, rng

    def __call__(self, x):
        n = int(self.rng.integers(0, self.longest))
        at = int(self.rng.integers(0, len(x) - n))
        x = x.copy()
        x[at:at + n] = 0.0
        return x


def simulate(cfg):
    rs = np.random.default_rng(11)
    t = np.arange(cfg.days * 96)
    base = np.sin(2 * np.pi * t / 96)[None] + 0.3 * np.sin(2 * np.pi * t / (96 * 7))[None]
    level = rs.uniform(0.5, 1.5, size=(cfg.stations, 1))
    return (base * level + rs.normal(0, 0.1, size=(cfg.stations, len(t)))).astype(np.float32)


class LoadWindows(Dataset):
    def __init__(self, series, starts, cfg, augment=None):
        self.series, self.cfg, self.augment = series, cfg, augment
        self.index = [(s, t) for s in range(len(series)) for t in starts]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        s, t = self.index[i]
        past = self.series[s, t:t + self.cfg.history]
        future = self.series[s, t + self.cfg.history:t + self.cfg.history + self.cfg.horizon]
        if self.augment is not None:
            past = self.augment(past)
        return torch.as_tensor(past, dtype=torch.float32).clone(), torch.from_numpy(future.copy())


class Forecaster(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        h = cfg.hidden
        self.net = nn.Sequential(nn.Linear(cfg.history, h), nn.GELU(), nn.Linear(h, h), nn.GELU(),
                                 nn.Linear(h, h), nn.GELU(), nn.Linear(h, h), nn.GELU(), nn.Linear(h, cfg.horizon))

    def forward(self, x):
        return self.net(x)


class Trainer:
    def __init__(self, cfg):
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        series = simulate(cfg)
        span = cfg.history + cfg.horizon
        starts = list(range(0, series.shape[1] - span, 32))
        cut = int(len(starts) * 0.85)
        rng = np.random.default_rng(cfg.seed)
        augment = Chain(MagnitudeScale(0.1, rng), SensorJitter(0.05, rng), DropSegment(24, rng))
        self.train_loader = DataLoader(LoadWindows(series, starts[:cut], cfg, augment), batch_size=cfg.batch_size,
                                       shuffle=True, num_workers=cfg.workers, drop_last=True)
        self.val_loader = DataLoader(LoadWindows(series, starts[cut:], cfg), batch_size=4 * cfg.batch_size)
        self.model = Forecaster(cfg)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, cfg.epochs)

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for past, future in self.train_loader:
            loss = nn.functional.l1_loss(self.model(past), future)
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            self.opt.step()
            total += loss.item()
        return total / len(self.train_loader)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        errors = [nn.functional.l1_loss(self.model(p), f).item() for p, f in self.val_loader]
        return sum(errors) / len(errors)

    def fit(self):
        for epoch in range(self.cfg.epochs):
            train = self.train_epoch()
            val = self.validate()
            self.sched.step()
            torch.save(self.model.state_dict(), self.cfg.out_dir / "last.pt")
            log.info("epoch %d train MAE %.4f val MAE %.4f", epoch, train, val)


if __name__ == "__main__":
    torch.set_num_threads(1)
    Trainer(ForecastConfig()).fit()
