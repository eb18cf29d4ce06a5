"""Whale song windows cut from long hydrophone recordings that are mapped, never read whole."""
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


@dataclass
class Settings:
    recordings: int = 6
    samples: int = 4_000_000
    songs: int = 960
    batch_size: int = 16
    epochs: int = 3
    workers: int = 1


class Hydrophones:
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.npy"))

    def cut(self, which, start, length):
        tape = np.load(self.paths[which], mmap_mode="c")
        return torch.from_numpy(tape)[start:start + length].clone()


class Songs(Dataset):
    def __init__(self, tapes, index):
        self.tapes, self.index = tapes, index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        which, start, length, kind = self.index[i]
        return self.tapes.cut(which, start, length), kind


def by_length(samples):
    waves, kinds = zip(*sorted(samples, key=lambda s: -len(s[0])))
    return list(waves), torch.tensor(kinds)


class SongNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, width, 31, stride=4), nn.ReLU(), nn.Conv1d(width, width, 15, stride=2), nn.ReLU(),
                                 nn.Conv1d(width, width, 9, stride=2), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(),
                                 nn.Linear(width, 3))

    def forward(self, waves):
        return self.net(pad_sequence(waves, batch_first=True).unsqueeze(1))


def record(folder, cfg):
    rng = np.random.default_rng(0)
    hiss = np.tile(rng.normal(0, 1, cfg.samples // 40).astype(np.float32), 40)
    index = []
    for which in range(cfg.recordings):
        tape = np.roll(hiss, which * 331)
        for _ in range(cfg.songs // cfg.recordings):
            kind, length = int(rng.integers(3)), int(rng.integers(7000, 9000))
            start = int(rng.integers(0, cfg.samples - length))
            tape[start:start + length] += np.sin(np.arange(length, dtype=np.float32) * (0.02 + 0.03 * kind))
            index.append((which, start, length, kind))
        np.save(Path(folder) / f"tape{which}.npy", tape)
    return index


def main():
    cfg = Settings()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="whales") as folder:
        index = record(folder, cfg)
        loader = DataLoader(Songs(Hydrophones(folder), index), cfg.batch_size, shuffle=True, num_workers=cfg.workers,
                            collate_fn=by_length, persistent_workers=True)
        model = SongNet()
        optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
        for epoch in range(cfg.epochs):
            start, wait, last = time.time(), 0.0, time.time()
            for waves, kinds in loader:
                wait += time.time() - last
                loss = nn.functional.cross_entropy(model(waves), kinds)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                last = time.time()
            print(f"epoch {epoch} loss {loss.item():.3f} {time.time() - start:.1f} s, of it {wait:.1f} s for data", flush=True)


if __name__ == "__main__":
    main()
