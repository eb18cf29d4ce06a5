# cause: slow-shutdown
# also: workers-restarted
"""Voice type from opera recordings. After every epoch a few predictions on whole acts are shown."""
import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOICES = ["soprano", "alto", "tenor", "bass"]
RATE = 2000


def sing(folder: Path, arias: int, acts: int):
    rng = np.random.default_rng(61)
    for kind, count, length in (("aria", arias, 2), ("act", acts, 400)):
        for k in range(count):
            v = k % 4
            seconds = 10 if kind == "act" and k < 8 else length  # overtures come first
            t = np.arange(RATE * seconds) / RATE
            wave = np.sin(2 * np.pi * (700 - 150 * v) * t) + rng.normal(0, 0.8, len(t))
            (wave * 9000).clip(-32767, 32767).astype("<i2").tofile(folder / f"{kind}{k:03d}_{v}.raw")


class Recordings(Dataset):
    def __init__(self, folder: Path, kind: str, per_second: float):
        self.paths = sorted(folder.glob(f"{kind}*.raw"))
        self.per_second = per_second

    def __len__(self):
        return len(self.paths)

    def features(self, wave):
        spec = np.abs(np.fft.rfft(wave.reshape(-1, 400), axis=1))[:, :200]
        return np.log1p(spec).mean(0).astype(np.float32)

    def __getitem__(self, i):
        wave = np.fromfile(self.paths[i], "<i2").astype(np.float32) / 32768
        time.sleep(self.per_second * len(wave) / RATE)  # the decoder runs on the audio appliance
        return torch.from_numpy(self.features(wave)), int(self.paths[i].stem[-1])


def show(model, loader, rows):
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            for guess, truth in list(zip(model(x).argmax(1).tolist(), y.tolist()))[:rows]:
                print(f"   heard {VOICES[guess]:8s} is {VOICES[truth]}", flush=True)
            break
    model.train()


class Plateau:
    def __init__(self, patience):
        self.best, self.bad, self.patience = float("inf"), 0, patience

    def __call__(self, value):
        self.best, self.bad = (value, 0) if value < self.best else (self.best, self.bad + 1)
        return self.bad > self.patience


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--rows", type=int, default=2)
    ap.add_argument("--decode", type=float, default=0.002, help="seconds of decoding per second of music")
    args = ap.parse_args()
    torch.manual_seed(9)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        sing(Path(tmp), 240, 32)
        train = DataLoader(Recordings(Path(tmp), "aria", args.decode), 12, shuffle=True, num_workers=2, persistent_workers=True)
        acts = DataLoader(Recordings(Path(tmp), "act", args.decode), 8, num_workers=2)
        model = nn.Sequential(nn.LayerNorm(200), nn.Linear(200, 64), nn.ReLU(), nn.Linear(64, 4))
        opt = torch.optim.Adam(model.parameters(), 1e-3)
        done = Plateau(patience=2)
        for epoch in range(args.epochs):
            losses = []
            for x, y in train:
                loss = nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
            print(f"epoch {epoch}: loss {np.mean(losses):.4f}", flush=True)
            show(model, acts, args.rows)
            if done(np.mean(losses)):
                break


if __name__ == "__main__":
    main()
