# cause: bad-sample
"""Whale call detection on hydrophone recordings: WAV in, log-mel-ish bands out."""
import glob
import os
import tempfile
import wave

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class HydrophoneClips(Dataset):
    rate = 4000

    def __init__(self, folder, seconds=2.0, bands=32):
        self.paths = sorted(glob.glob(os.path.join(folder, "*.wav")))
        self.frames = int(seconds * self.rate)
        self.bands = bands

    def __len__(self):
        return len(self.paths)

    def read(self, path):
        with wave.open(path) as w:
            raw = w.readframes(self.frames)
        return torch.frombuffer(bytearray(raw), dtype=torch.int16).float() / 32768

    def __getitem__(self, i):
        pcm = self.read(self.paths[i])
        spec = torch.stft(pcm, 256, 64, window=torch.hann_window(256), return_complex=True).abs()
        spec = spec[:128].reshape(self.bands, -1, spec.shape[-1]).mean(1).log1p()
        label = int(os.path.basename(self.paths[i]).split("_")[1][0])
        return spec, label


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(32, 32, 5), nn.ReLU(), nn.Conv1d(32, 16, 5), nn.ReLU(), nn.AdaptiveMaxPool1d(1))
        self.fc = nn.Linear(16, 2)

    def forward(self, x):
        return self.fc(self.conv(x).squeeze(-1))


def deploy_buoy(folder, count):
    """What the buoy would have recorded. The last clip before each battery change ends when the power goes."""
    rng = np.random.default_rng(0)
    t = np.arange(8000) / HydrophoneClips.rate
    for k in range(count):
        call = k % 2
        x = 0.1 * rng.standard_normal(len(t))
        if call:
            x += 0.5 * np.sin(2 * np.pi * (80 + 40 * t) * t)
        if k and k % 149 == 0:
            x = x[:6800]
        with wave.open(os.path.join(folder, f"{k:04d}_{call}.wav"), "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(HydrophoneClips.rate)
            w.writeframes((x.clip(-1, 1) * 32767).astype("<i2").tobytes())


class Experiment:
    def __init__(self, folder):
        data = HydrophoneClips(folder)
        n = int(0.9 * len(data))
        tr, va = torch.utils.data.random_split(data, [n, len(data) - n], torch.Generator().manual_seed(1))
        self.train_loader = DataLoader(tr, batch_size=25, shuffle=True, num_workers=3, persistent_workers=True)
        self.val_loader = DataLoader(va, batch_size=1, num_workers=1)
        self.model = Detector()
        self.opt = torch.optim.AdamW(self.model.parameters(), 1e-3)

    def epoch(self):
        for x, y in self.train_loader:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        return np.mean([(self.model(x).argmax(1) == y).item() for x, y in self.val_loader])

    def run(self, epochs):
        for e in range(epochs):
            print(f"epoch {e} loss {self.epoch():.3f} val {self.validate():.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory() as d:
        deploy_buoy(d, 600)
        Experiment(d).run(3)
