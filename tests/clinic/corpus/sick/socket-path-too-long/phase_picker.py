# cause: socket-path-too-long
# limits: tmpdir=long
"""P-wave arrival picker on synthetic three-component seismograms."""
import os
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset


@dataclass
class Settings:
    stations: tuple = ("ANMO", "KONO", "TATO")
    per_station: int = 300
    length: int = 1024
    batch: int = 32
    epochs: int = 3
    workers: int = 2
    lr: float = 1e-3


class StationTraces(Dataset):
    def __init__(self, station, n, length):
        self.station, self.n, self.length = station, n, length
        self.offset = sum(map(ord, station)) * 1000

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(self.offset + i)
        onset = int(rng.integers(100, self.length - 200))
        wave = rng.normal(0, 0.2, (3, self.length)).astype(np.float32)
        t = np.arange(self.length - onset)
        wave[:, onset:] += (np.exp(-t / 150.0) * np.sin(t / 4.0)).astype(np.float32) * rng.uniform(0.5, 2.0, (3, 1))
        target = np.exp(-0.5 * ((np.arange(self.length) - onset) / 10.0) ** 2).astype(np.float32)
        return {"wave": torch.from_numpy(wave), "pick": torch.from_numpy(target), "onset": onset}


class Picker(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        layers, cin = [], 3
        for dil in (1, 2, 4, 8):
            layers += [nn.Conv1d(cin, c, 7, padding=3 * dil, dilation=dil), nn.BatchNorm1d(c), nn.ReLU()]
            cin = c
        self.trunk = nn.Sequential(*layers)
        self.out = nn.Conv1d(c, 1, 1)

    def forward(self, x):
        return self.out(self.trunk(x)).squeeze(1)


class Experiment:
    def __init__(self, cfg: Settings):
        self.cfg = cfg
        self.run_dir = tempfile.mkdtemp(prefix="picker_")
        full = [StationTraces(s, cfg.per_station, cfg.length) for s in cfg.stations]
        self.train_dl = self._loader(ConcatDataset(full[:-1]), shuffle=True)
        self.test_dl = self._loader(full[-1], shuffle=False)
        self.model = Picker()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)

    def _loader(self, ds, shuffle):
        return DataLoader(ds, batch_size=self.cfg.batch, shuffle=shuffle, num_workers=self.cfg.workers,
                          persistent_workers=True)

    def train(self, epoch):
        self.model.train()
        for step, batch in enumerate(self.train_dl):
            loss = nn.functional.binary_cross_entropy_with_logits(self.model(batch["wave"]), batch["pick"])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if step % 5 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)

    @torch.no_grad()
    def test(self):
        self.model.eval()
        errors = []
        for batch in self.test_dl:
            guess = self.model(batch["wave"]).argmax(1)
            errors.append((guess - batch["onset"]).abs().float())
        return torch.cat(errors).median().item()

    def run(self):
        best = float("inf")
        for epoch in range(self.cfg.epochs):
            self.train(epoch)
            err = self.test()
            print(f"epoch {epoch} median pick error {err:.1f} samples", flush=True)
            if err < best:
                best = err
                torch.save(self.model.state_dict(), os.path.join(self.run_dir, "best.pt"))


if __name__ == "__main__":
    torch.manual_seed(1)
    Experiment(Settings()).run()
