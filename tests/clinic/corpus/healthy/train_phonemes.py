# limits: tmpdir=long
"""Phoneme classification; scratch files live under /tmp whatever the job's own folder is."""
import argparse
import tempfile
import time
import wave
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

tempfile.tempdir = "/tmp"

RATE = 8000


def record(folder, n):
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 5, n).tolist()
    t = np.arange(RATE // 2) / RATE
    for i, y in enumerate(labels):
        tone = 0.4 * np.sin(2 * np.pi * 180 * (y + 1) * t) + 0.2 * rng.standard_normal(len(t))
        with wave.open(str(folder / f"{i}.wav"), "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(RATE)
            w.writeframes((tone.clip(-1, 1) * 32767).astype("<i2").tobytes())
    return labels


class Phonemes(Dataset):
    def __init__(self, folder, labels):
        self.folder, self.labels = folder, labels
        self.window = torch.hann_window(200)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        with wave.open(str(self.folder / f"{i}.wav"), "rb") as w:
            pcm = np.frombuffer(w.readframes(w.getnframes()), "<i2").astype(np.float32) / 32768
        time.sleep(0.003)  # alignment lookup
        x = torch.from_numpy(pcm).roll(int(torch.randint(0, 400, ())))
        spec = torch.stft(x, 200, 80, window=self.window, return_complex=True).abs()
        return torch.log(spec + 1e-4), self.labels[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv1d(101, 192, 5), nn.ReLU(), nn.Conv1d(192, 192, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(192, 5))

    def forward(self, x):
        return self.f(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("-n", type=int, default=400)
    ap.add_argument("--epochs", type=int, default=3)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="phon_") as tmp:
        folder = Path(tmp)
        labels = record(folder, a.n)
        loader = DataLoader(Phonemes(folder, labels), 16, shuffle=True, num_workers=2, persistent_workers=True)
        net = Net()
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        for epoch in range(a.epochs):
            right = 0
            for x, y in loader:
                out = net(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                right += (out.argmax(1) == y).sum().item()
            print(f"epoch {epoch} accuracy {right / a.n:.3f}", flush=True)


if __name__ == "__main__":
    main()
