# cause: socket-path-too-long
# limits: tmpdir=long
"""Keyword spotting on synthetic tones stored as 16 bit WAV."""
import argparse
import tempfile
import wave
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

RATE = 8000


def make_wavs(folder: Path, n: int):
    rng = np.random.default_rng(0)
    labels = []
    for i in range(n):
        y = int(rng.integers(6))
        t = np.arange(RATE) / RATE
        tone = np.sin(2 * np.pi * (220 * (y + 1)) * t) * 0.4 + 0.1 * rng.standard_normal(RATE)
        with wave.open(str(folder / f"{i:05d}.wav"), "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(RATE)
            w.writeframes((tone.clip(-1, 1) * 32767).astype("<i2").tobytes())
        labels.append(y)
    return labels


class Keywords(Dataset):
    def __init__(self, folder: Path, labels):
        self.folder, self.labels = folder, labels
        self.window = torch.hann_window(256)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        with wave.open(str(self.folder / f"{i:05d}.wav"), "rb") as w:
            pcm = np.frombuffer(w.readframes(w.getnframes()), "<i2").astype(np.float32) / 32768
        x = torch.from_numpy(pcm)
        shift = int(torch.randint(0, 800, ()))
        spec = torch.stft(x.roll(shift), 256, 128, window=self.window, return_complex=True).abs()
        return spec.clamp_min(1e-5).log(), self.labels[i]


class Spotter(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(129, 32, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.fc = nn.Linear(32, classes)

    def forward(self, x):
        return self.fc(self.conv(x))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("-n", type=int, default=400)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory(prefix="kws_") as tmp:
        folder = Path(tmp)
        labels = make_wavs(folder, args.n)
        freq = np.bincount(labels, minlength=6)
        sampler = WeightedRandomSampler([1.0 / freq[y] for y in labels], args.n)
        loader = DataLoader(Keywords(folder, labels), 20, sampler=sampler, num_workers=args.workers, persistent_workers=True)
        net = Spotter()
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs)
        for epoch in range(args.epochs):
            good = 0
            for x, y in loader:
                out = net(x)
                loss = nn.functional.cross_entropy(out, y, label_smoothing=0.05)
                opt.zero_grad()
                loss.backward()
                opt.step()
                good += (out.argmax(1) == y).sum().item()
            sched.step()
            print(f"epoch {epoch}: accuracy {good / args.n:.3f}", flush=True)


if __name__ == "__main__":
    main()
