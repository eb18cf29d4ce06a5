# cause: rng-repeated
"""Speaker classification on log spectra with masking. The masking recipe is a table of steps, as in our other recipes."""
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECIPE = {
    "seed": 2024,
    "steps": [("gain", {"low": 0.6, "high": 1.5}), ("freq_mask", {"width": 14}), ("time_mask", {"width": 10}), ("noise", {"level": 0.2})],
    "loader": {"batch_size": 12, "num_workers": 2, "shuffle": True},
    "epochs": 3,
}


def gain(x, draw, low, high):
    return x * (low + (high - low) * draw())


def freq_mask(x, draw, width):
    start = int(draw() * (x.shape[0] - width))
    x[start:start + width] = 0
    return x


def time_mask(x, draw, width):
    start = int(draw() * (x.shape[1] - width))
    x[:, start:start + width] = 0
    return x


def noise(x, draw, level):
    return x + np.float32(level * draw())


STEPS = {f.__name__: f for f in (gain, freq_mask, time_mask, noise)}


class Pipeline:
    def __init__(self, steps):
        self.steps = steps

    @classmethod
    def from_recipe(cls, recipe):
        draw = np.random.default_rng(recipe["seed"]).random
        return cls([partial(STEPS[name], draw=draw, **kw) for name, kw in recipe["steps"]])

    def __call__(self, x):
        for step in self.steps:
            x = step(x)
        return x


def record(root: Path, speakers=8, takes=45):
    rng = np.random.default_rng(77)
    for s in range(speakers):
        pitch = 0.05 + 0.04 * s
        for t in range(takes):
            n = np.arange(6400)
            wave = np.sin(n * pitch + rng.random() * 6) + 0.4 * np.sin(2 * n * pitch) + rng.normal(0, 0.6, len(n))
            (wave * 6000).astype("<i2").tofile(root / f"spk{s}_{t:03d}.pcm")


class Takes(Dataset):
    def __init__(self, root: Path, augment=None, keep=lambda k: True):
        self.paths = [p for k, p in enumerate(sorted(root.glob("*.pcm"))) if keep(k)]
        self.augment = augment

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        wave = np.fromfile(self.paths[i], "<i2").astype(np.float32) / 32768
        time.sleep(0.003)
        frames = np.lib.stride_tricks.sliding_window_view(wave, 256)[::128] * np.hanning(256)
        spec = np.log1p(20 * np.abs(np.fft.rfft(frames, axis=1)).T[:96]).astype(np.float32)
        if self.augment:
            spec = self.augment(spec)
        return torch.from_numpy(np.ascontiguousarray(spec, np.float32)), int(self.paths[i].name[3])


class SpeakerNet(nn.Module):
    def __init__(self, speakers):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(96, 64, 5, 2), nn.ReLU(), nn.Conv1d(64, 64, 3), nn.ReLU())
        self.out = nn.Linear(128, speakers)

    def forward(self, x):
        h = self.conv(x)
        return self.out(torch.cat([h.mean(-1), h.amax(-1)], 1))


def main():
    torch.manual_seed(RECIPE["seed"])
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        record(Path(tmp))
        train = Takes(Path(tmp), Pipeline.from_recipe(RECIPE), keep=lambda k: k % 9)
        test = Takes(Path(tmp), keep=lambda k: not k % 9)
        loader = DataLoader(train, persistent_workers=True, **RECIPE["loader"])
        model = SpeakerNet(8)
        opt = torch.optim.AdamW(model.parameters(), 1e-3)
        for epoch in range(RECIPE["epochs"]):
            losses = []
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.05)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
            model.eval()
            with torch.no_grad():
                acc = np.mean([(model(x).argmax(1) == y).float().mean().item() for x, y in DataLoader(test, 20)])
            model.train()
            print(f"epoch {epoch}: loss {np.mean(losses):.4f} held-out accuracy {acc:.3f}", flush=True)


if __name__ == "__main__":
    main()
