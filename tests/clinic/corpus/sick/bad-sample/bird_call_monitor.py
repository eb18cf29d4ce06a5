# cause: bad-sample
"""Bird calls from field recorders: WAV files to log spectrograms to a small CNN."""
import dataclasses
import tempfile
import time
import wave
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

SPECIES = ("wren", "robin", "heron", "owl", "swift")


@dataclasses.dataclass(frozen=True)
class Recipe:
    rate: int = 16000
    seconds: float = 2.0
    clips: int = 800
    window: int = 512
    hop: int = 128
    bands: int = 48
    batch: int = 25
    epochs: int = 3
    lr: float = 2e-3


def call(kind, rate, seconds, g):
    t = np.arange(int(rate * seconds)) / rate
    f = (3200, 2400, 500, 380, 5200)[kind] * g.uniform(0.92, 1.08)
    warble = (12, 5, 1, 0.5, 20)[kind]
    x = np.sin(2 * np.pi * f * t + 30 * np.sin(2 * np.pi * warble * t)) * (np.sin(2 * np.pi * g.uniform(1, 3) * t) > 0)
    return 0.4 * x + 0.05 * g.standard_normal(len(t))


def record_season(folder, r, seed=2):
    """Synthetic recordings of one season, one file per call."""
    g = np.random.default_rng(seed)
    for i in range(r.clips):
        kind = int(g.integers(len(SPECIES)))
        rate = 22050 if i == 3 * r.clips // 5 else r.rate
        x = call(kind, rate, r.seconds, g)
        with wave.open(str(folder / f"{SPECIES[kind]}_{i:04d}.wav"), "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(rate)
            w.writeframes((x.clip(-1, 1) * 32000).astype("<i2").tobytes())


class Spectrogram:
    def __init__(self, r):
        self.r = r
        edges = np.geomspace(4, r.window // 2, r.bands + 1)
        bins = np.arange(r.window // 2 + 1)
        self.weights = np.stack([np.exp(-0.5 * ((bins - (a + b) / 2) / (b - a + 0.5)) ** 2) for a, b in zip(edges, edges[1:])]).astype(np.float32)
        self.taper = np.hanning(r.window)

    def __call__(self, x):
        frames = np.lib.stride_tricks.sliding_window_view(x, self.r.window)[::self.r.hop]
        power = np.abs(np.fft.rfft(frames * self.taper, axis=1)) ** 2
        return np.log1p(power @ self.weights.T).T.astype(np.float32)


class Denoise:
    """Removes the stationary background, band by band."""

    def __call__(self, s):
        return np.maximum(s - np.median(s, 1, keepdims=True), 0)


class FieldClips(Dataset):
    def __init__(self, folder, r):
        self.files = np.array(sorted(str(p) for p in Path(folder).glob("*.wav")))
        self.steps = [Spectrogram(r), Denoise()]

    def __len__(self):
        return len(self.files)

    def load(self, name):
        with wave.open(name) as w:
            return np.frombuffer(w.readframes(w.getnframes()), "<i2") / 32768.0

    def __getitem__(self, i):
        name = str(self.files[i])
        x = self.load(name)
        for step in self.steps:
            x = step(x)
        return torch.from_numpy(x)[None], SPECIES.index(Path(name).stem.split("_")[0])


class Ears(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 5, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(3))
        self.head = nn.Linear(144, len(SPECIES))

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def accuracy(net, loader):
    net.eval()
    with torch.inference_mode():
        right = [(net(x).argmax(1) == y).float() for x, y in loader]
    return torch.cat(right).mean().item()


def fit(folder, r):
    clips = FieldClips(folder, r)
    train, val, test = random_split(clips, [0.8, 0.1, 0.1], torch.Generator().manual_seed(6))
    make = lambda part, **k: DataLoader(part, r.batch, num_workers=2, persistent_workers=True, **k)
    train_loader, val_loader = make(train, shuffle=True), make(val)
    net = Ears()
    opt = torch.optim.AdamW(net.parameters(), r.lr, weight_decay=0.01)
    best = 0.0
    for epoch in range(r.epochs):
        net.train()
        t, running = time.time(), 0.0
        for x, y in train_loader:
            loss = nn.functional.cross_entropy(net(x), y, label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
        score = accuracy(net, val_loader)
        if score > best:
            best = score
            torch.save(net.state_dict(), Path(folder) / "best.pt")
        print(f"epoch {epoch} loss {running / len(train_loader):.3f} val {score:.3f} {time.time() - t:.1f} s", flush=True)
    net.load_state_dict(torch.load(Path(folder) / "best.pt"))
    print(f"test accuracy {accuracy(net, make(test)):.3f}")


if __name__ == "__main__":
    torch.manual_seed(6)
    torch.set_num_threads(1)
    recipe = Recipe()
    with tempfile.TemporaryDirectory(prefix="birds-") as folder:
        record_season(Path(folder), recipe)
        fit(folder, recipe)
