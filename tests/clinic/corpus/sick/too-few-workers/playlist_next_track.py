# cause: too-few-workers
"""Next-track recommendation: session GRU over listening histories kept in a feature service."""
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


@dataclass(frozen=True)
class Settings:
    sessions: int = 360
    tracks: int = 400
    length: int = 24
    batch: int = 16
    epochs: int = 3
    requests_per_second: float = 55.0
    loader_workers: int = 1
    seed: int = 11


class Pacer:
    """The service asks each connection to stay below a request rate."""

    def __init__(self, rate):
        self.interval = 1.0 / rate
        self.next_slot = 0.0

    def __enter__(self):
        now = time.monotonic()
        if self.next_slot > now:
            time.sleep(self.next_slot - now)
        self.next_slot = max(now, self.next_slot) + self.interval
        return self

    def __exit__(self, *exc):
        return False


class FeatureService:
    """Stand-in of the production client: history and audio features of a session by id."""

    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed)
        centre = rng.integers(0, cfg.tracks, cfg.sessions)[:, None]
        steps = rng.integers(-3, 4, (cfg.sessions, cfg.length + 1)).cumsum(1)
        self._table = ((centre + steps) % cfg.tracks).astype(np.int64)
        self._audio = rng.normal(size=(cfg.tracks, 8)).astype(np.float32)
        self._rate = cfg.requests_per_second
        self._pacer = None

    @property
    def pacer(self):
        if self._pacer is None:
            self._pacer = Pacer(self._rate)
        return self._pacer

    def fetch(self, session):
        with self.pacer:
            tracks = self._table[session]
            return {"tracks": tracks, "audio": self._audio[tracks[:-1]]}


class SessionDataset(Dataset):
    def __init__(self, cfg, service):
        self.cfg, self.service = cfg, service

    def __len__(self):
        return self.cfg.sessions

    def __getitem__(self, index):
        record = self.service.fetch(index)
        tracks = torch.from_numpy(record["tracks"].copy())
        return tracks[:-1], torch.from_numpy(record["audio"]), tracks[1:]


class NextTrack(nn.Module):
    def __init__(self, tracks, width=48):
        super().__init__()
        self.embed = nn.Embedding(tracks, width)
        self.audio = nn.Linear(8, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, tracks)

    def forward(self, tracks, audio):
        hidden, _ = self.rnn(self.embed(tracks) + self.audio(audio))
        return self.head(hidden)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        torch.set_num_threads(1)
        data = SessionDataset(cfg, FeatureService(cfg))
        held = cfg.sessions // 8
        train, valid = random_split(data, [cfg.sessions - held, held])
        self.train_loader = self.loader(train, shuffle=True)
        self.valid_loader = self.loader(valid, shuffle=False)
        self.model = NextTrack(cfg.tracks)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def loader(self, part, shuffle):
        return DataLoader(part, batch_size=self.cfg.batch, shuffle=shuffle, prefetch_factor=4,
                          num_workers=self.cfg.loader_workers, persistent_workers=True)

    def loss(self, batch):
        tracks, audio, target = batch
        return nn.functional.cross_entropy(self.model(tracks, audio).flatten(0, 1), target.flatten())

    def fit(self):
        for epoch in range(self.cfg.epochs):
            started, running, count = time.time(), 0.0, 0
            for batch in self.train_loader:
                loss = self.loss(batch)
                self.optimiser.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimiser.step()
                running += loss.item()
                count += 1
            print(f"epoch {epoch}: train {running / count:.3f} valid {self.validate():.3f} in {time.time() - started:.1f} s", flush=True)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        values = [self.loss(batch).item() for batch in self.valid_loader]
        self.model.train()
        return sum(values) / len(values)


if __name__ == "__main__":
    Trainer(Settings()).fit()
