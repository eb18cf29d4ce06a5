# cause: fd-exhausted
# also: many-small-tensors
# limits: nofile=256
"""Autoencoder for anomaly scores of a gas turbine: many named sensor channels, each normalised in its own way."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

STAGES = 15
QUANTITIES = ("temp_in", "temp_out", "pressure_in", "pressure_out", "vibration_x", "vibration_y", "flow", "gap",
              "torque", "strain", "acoustic", "oil_temp", "oil_debris", "bearing", "rpm", "power", "nox", "humidity")
CHANNELS = [f"s{stage:02d}.{quantity}" for stage in range(STAGES) for quantity in QUANTITIES]
WINDOW = 32


class TurbineHistorian(Dataset):
    """Windows of plant history, by channel name."""

    def __init__(self, hours, seed):
        rng = np.random.default_rng(seed)
        steps = hours * 60
        load = np.cumsum(rng.standard_normal(steps)) * 0.05
        self.phase = rng.uniform(0, 6.28, len(CHANNELS)).astype(np.float32)
        self.gain = rng.uniform(0.5, 2, len(CHANNELS)).astype(np.float32)
        self.load = load.astype(np.float32)
        self.steps = steps
        self.seed = seed

    def __len__(self):
        return self.steps // 8 - WINDOW // 8

    def __getitem__(self, index):
        start = index * 8
        rng = np.random.default_rng([self.seed, index])
        base = self.load[start:start + WINDOW]
        signal = self.gain[:, None] * np.sin(base[None] + self.phase[:, None])
        signal = signal + 0.05 * rng.standard_normal(signal.shape, dtype=np.float32)
        return dict(zip(CHANNELS, signal))


class Preprocess:
    """Replaces each channel by what the engineers look at for it."""

    def __call__(self, window):
        out = {}
        for name, series in window.items():
            if "vibration" in name or "acoustic" in name:
                series = np.abs(np.fft.rfft(series))[:WINDOW // 2]
            else:
                series = series[::2] - series.mean()
            out[name] = torch.from_numpy(np.ascontiguousarray(series, np.float32))
        return out


class Transformed(Dataset):
    def __init__(self, dataset, transform):
        self.dataset, self.transform = dataset, transform

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.transform(self.dataset[index])


class StageAutoencoder(nn.Module):
    def __init__(self, code=24):
        super().__init__()
        inputs = len(CHANNELS) * WINDOW // 2
        self.encode = nn.Sequential(nn.Linear(inputs, 96), nn.ReLU(), nn.Linear(96, code))
        self.decode = nn.Sequential(nn.Linear(code, 96), nn.ReLU(), nn.Linear(96, inputs))

    def forward(self, channels):
        x = torch.cat([channels[name] for name in CHANNELS], 1)
        return (self.decode(self.encode(x)) - x).pow(2).mean(1)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--num-workers", type=int, default=2)
    return parser.parse_args()


def main():
    args = parse()
    torch.manual_seed(0)
    history = Transformed(TurbineHistorian(args.hours, 3), Preprocess())
    cut = int(0.8 * len(history))
    loaders = {
        "train": DataLoader(Subset(history, range(cut)), args.batch_size, shuffle=True, num_workers=args.num_workers,
                            persistent_workers=True),
        "val": DataLoader(Subset(history, range(cut, len(history))), args.batch_size),
    }
    model = StageAutoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for phase, loader in loaders.items():
            began, scores = time.time(), []
            for channels in loader:
                with torch.set_grad_enabled(phase == "train"):
                    score = model(channels)
                if phase == "train":
                    optimizer.zero_grad()
                    score.mean().backward()
                    optimizer.step()
                scores.append(score.detach())
            scores = torch.cat(scores)
            print(f"{epoch} {phase:5s} mean {scores.mean():.4f} p99 {scores.quantile(0.99):.4f} "
                  f"{time.time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
