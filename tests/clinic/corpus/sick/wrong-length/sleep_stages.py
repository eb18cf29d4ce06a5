# cause: wrong-length
# also: workers-not-worth-it
"""Sleep stage scoring from EEG windows; one dataset per night, concatenated."""
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset


@dataclass
class Settings:
    window: int = 1500
    hop: int = 500
    night: int = 90_000
    train_nights: list = field(default_factory=lambda: list(range(9)))
    test_nights: list = field(default_factory=lambda: [50, 51])
    batch: int = 32
    workers: int = 2
    epochs: int = 4


class NightRecording(Dataset):
    """One night, cut into overlapping windows."""

    def __init__(self, night, cfg):
        rng = np.random.default_rng(night)
        self.cfg = cfg
        self.signal = rng.standard_normal(cfg.night).astype(np.float32)
        self.stage = np.repeat(rng.integers(0, 5, cfg.night // cfg.window + 1), cfg.window)[: cfg.night]
        self.signal += np.sin(np.arange(cfg.night) * 0.02 * (1 + self.stage)).astype(np.float32)
        self.starts = list(range(0, cfg.night - cfg.window + 1, cfg.hop))

    def __len__(self):
        return self.cfg.night // self.cfg.window

    def __getitem__(self, i):
        s = self.starts[i]
        piece = self.signal[s: s + self.cfg.window]
        spec = self.bands(piece)
        return spec, int(self.stage[s + self.cfg.window // 2])

    def bands(self, piece):
        frames = np.lib.stride_tricks.sliding_window_view(piece, 256)[::12]
        mag = np.abs(np.fft.rfft(frames * np.hanning(256), axis=1)).astype(np.float32)
        return torch.from_numpy(np.log1p(mag[:, :96]).T.copy())


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(96, 256, 5, padding=2), nn.GELU(), nn.Conv1d(256, 256, 5, padding=2),
                                  nn.GELU(), nn.Conv1d(256, 128, 5, padding=2), nn.GELU())
        self.out = nn.Linear(128, 5)

    def forward(self, x):
        return self.out(self.conv(x).mean(-1))


class Experiment:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.model = Scorer()
        self.opt = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.loss = nn.CrossEntropyLoss()
        self.train = self.loader(cfg.train_nights, True)
        self.test = self.loader(cfg.test_nights, False)

    def loader(self, nights, train):
        parts = ConcatDataset([NightRecording(n, self.cfg) for n in nights])
        return DataLoader(parts, self.cfg.batch, shuffle=train, num_workers=self.cfg.workers,
                          persistent_workers=True)

    def run(self):
        print(f"train windows {len(self.train.dataset)}, test windows {len(self.test.dataset)}")
        for epoch in range(self.cfg.epochs):
            self.model.train()
            run = 0.0
            for x, y in self.train:
                self.opt.zero_grad()
                loss = self.loss(self.model(x), y)
                loss.backward()
                self.opt.step()
                run += loss.item()
            self.model.eval()
            confusion = torch.zeros(5, 5, dtype=torch.long)
            with torch.no_grad():
                for x, y in self.test:
                    for t, p in zip(y, self.model(x).argmax(1)):
                        confusion[t, p] += 1
            acc = confusion.diag().sum().item() / confusion.sum().item()
            print(f"epoch {epoch} loss {run / len(self.train):.3f} acc {acc:.3f}", flush=True)


if __name__ == "__main__":
    Experiment(Settings()).run()
