# cause: transform-bound
"""Keyword spotting on one-second clips with an auditory (gammatone-like) filterbank front end."""
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLE_RATE = 8000
KEYWORDS = ["yes", "no", "stop", "go"]


class PreEmphasis:
    def __init__(self, coef=0.97):
        self.coef = coef

    def __call__(self, wav):
        out = wav.copy()
        out[1:] -= self.coef * wav[:-1]
        return out


class BandEnergies:
    """A bank of two-pole resonators followed by rectification and frame averaging."""

    def __init__(self, centres, frame=200, q=6.0):
        self.frame = frame
        self.coefs = []
        for fc in centres:
            w = 2 * math.pi * fc / SAMPLE_RATE
            r = 1 - w / (2 * q)
            self.coefs.append((2 * r * math.cos(w), -r * r, 1 - r))

    def __call__(self, wav):
        bands = []
        samples = wav.tolist()
        for a1, a2, gain in self.coefs:
            y1 = y2 = 0.0
            env = []
            acc = 0.0
            for n, x in enumerate(samples, 1):
                y = gain * x + a1 * y1 + a2 * y2
                y2, y1 = y1, y
                acc += y if y > 0 else -y
                if n % self.frame == 0:
                    env.append(acc / self.frame)
                    acc = 0.0
            bands.append(env)
        return np.asarray(bands, dtype=np.float32)


class LogCompress:
    def __call__(self, feats):
        return torch.from_numpy(np.log(feats + 1e-5))


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, x):
        for step in self.steps:
            x = step(x)
        return x


class KeywordClips(Dataset):
    def __init__(self, n, transform, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(KEYWORDS), n)
        t = np.arange(SAMPLE_RATE) / SAMPLE_RATE
        pitch = 180 * (1 + self.labels) * rng.uniform(0.9, 1.1, n)
        self.clips = (0.4 * np.sin(2 * np.pi * pitch[:, None] * t)
                      + 0.05 * rng.standard_normal((n, SAMPLE_RATE))).astype(np.float32)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(self.clips[i]), int(self.labels[i])


class SmallTCN(nn.Module):
    def __init__(self, n_bands, n_classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(n_bands, 24, 3, padding=1), nn.BatchNorm1d(24), nn.ReLU(),
            nn.Conv1d(24, 24, 3, padding=2, dilation=2), nn.ReLU())
        self.out = nn.Linear(24, n_classes)

    def forward(self, x):
        return self.out(self.body(x).mean(-1))


def run():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    centres = np.geomspace(120, 3200, 6)
    transform = Compose(PreEmphasis(), BandEnergies(centres), LogCompress())
    train = KeywordClips(800, transform, seed=0)
    loader = DataLoader(train, batch_size=8, shuffle=True, num_workers=2,
                        prefetch_factor=4, persistent_workers=True)
    model = SmallTCN(len(centres), len(KEYWORDS))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(4):
        start, correct, n = time.time(), 0, 0
        for step, (feats, target) in enumerate(loader):
            logits = model(feats)
            loss = criterion(logits, target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            correct += (logits.argmax(-1) == target).sum().item()
            n += target.numel()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
        print(f"epoch {epoch}: acc {correct / n:.3f}, {n / (time.time() - start):.0f} clips/s", flush=True)


if __name__ == "__main__":
    run()
