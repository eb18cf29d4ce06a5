# cause: workers-restarted
"""Screening of cough recordings with early stopping on the plateau."""
import math
import tempfile
import time
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


@dataclass(frozen=True)
class Hyper:
    clips: int = 96
    rate: int = 8000
    frame: int = 256
    bands: int = 40
    batch: int = 8
    rounds: int = 15
    patience: int = 20
    lr: float = 2e-3


def make_clips(folder, hp):
    rng = np.random.default_rng(12)
    for i in range(hp.clips):
        t = np.arange(hp.rate) / hp.rate
        burst = np.exp(-8 * (t - 0.2) ** 2) * rng.standard_normal(hp.rate)
        if i % 2:
            burst += 0.5 * np.sin(2 * np.pi * 900 * t)
        pcm = np.clip(burst * 8000, -32000, 32000).astype("<i2")
        with wave.open(str(folder / f"clip{i:04d}_{i % 2}.wav"), "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(hp.rate)
            w.writeframes(pcm.tobytes())


class BarkBank:
    """Critical-band weights by numerical integration."""

    def __init__(self, hp):
        self.hp = hp
        self._weights = None

    @property
    def weights(self):
        if self._weights is None:
            bins = self.hp.frame // 2 + 1
            rows = []
            for band in range(self.hp.bands):
                row = []
                for b in range(bins):
                    acc = 0.0
                    for k in range(110):
                        f = (b + k / 110) * self.hp.rate / self.hp.frame
                        bark = 13 * math.atan(0.00076 * f) + 3.5 * math.atan((f / 7500) ** 2)
                        acc += math.exp(-abs(bark - band * 0.5))
                    row.append(acc / 110)
                rows.append(row)
            self._weights = np.array(rows, dtype=np.float32)
        return self._weights

    def apply(self, power):
        return np.einsum("bk,tk->bt", self.weights, power)


class Coughs(Dataset):
    def __init__(self, folder, hp):
        self.files = sorted(folder.glob("*.wav"))
        self.hp = hp
        self.bank = BarkBank(hp)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with wave.open(str(self.files[i])) as w:
            pcm = np.frombuffer(w.readframes(w.getnframes()), "<i2").astype(np.float32) / 32768
        shift = torch.randint(0, 400, ()).item()
        pcm = np.roll(pcm, shift)
        frames = np.lib.stride_tricks.sliding_window_view(pcm, self.hp.frame)[::64] * np.hanning(self.hp.frame)
        power = np.abs(np.fft.rfft(frames, axis=1)).astype(np.float32) ** 2
        feature = np.log(self.bank.apply(power) + 1e-6).astype(np.float32)
        return torch.from_numpy(feature), int(self.files[i].stem[-1])


class Plateau:
    def __init__(self, patience):
        self.best, self.left, self.patience = float("inf"), patience, patience

    def stop(self, value):
        if value < self.best - 1e-4:
            self.best, self.left = value, self.patience
        else:
            self.left -= 1
        return self.left <= 0


def main():
    hp = Hyper()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        make_clips(folder, hp)
        train, held = random_split(Coughs(folder, hp), [80, 16])
        batches = DataLoader(train, hp.batch, shuffle=True, num_workers=2)
        checks = DataLoader(held, 16, num_workers=1)
        net = nn.Sequential(nn.Conv1d(hp.bands, 16, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 2))
        opt = torch.optim.Adam(net.parameters(), lr=hp.lr)
        plateau = Plateau(hp.patience)
        for number in range(hp.rounds):
            began = time.time()
            for x, y in batches:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            spent = time.time() - began
            with torch.no_grad():
                score = np.mean([nn.functional.cross_entropy(net(x), y).item() for x, y in checks])
            print(f"round {number}: held-out {score:.4f} train {spent:.2f}s", flush=True)
            if plateau.stop(score):
                break


if __name__ == "__main__":
    main()
