# cause: bad-sample
"""Vessel trajectories: predict the next position, validate on another harbour after each epoch."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    vessels: int = 900
    steps: int = 40
    batch: int = 10
    epochs: int = 3


class Tracks(Dataset):
    def __init__(self, vessels, steps, seed, gaps):
        rng = np.random.default_rng(seed)
        self.start = rng.normal(size=(vessels, 2)).astype(np.float32)
        self.course = rng.uniform(0, 2 * np.pi, vessels).astype(np.float32)
        self.reported = np.where(rng.random(vessels) < gaps, steps - 3, steps)
        self.steps = steps

    def __len__(self):
        return len(self.start)

    def __getitem__(self, vessel):
        time = np.arange(self.reported[vessel] + 1, dtype=np.float32)
        heading = self.course[vessel] + 0.2 * np.sin(time / 5)
        track = self.start[vessel] + np.cumsum(np.stack([np.cos(heading), np.sin(heading)], 1), 0) * 0.05
        return torch.from_numpy(track[:-1]), torch.from_numpy(track[1:])


class Forecaster(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.cell = nn.GRUCell(2, width)
        self.out = nn.Linear(width, 2)
        self.width = width

    def forward(self, track):
        state = track.new_zeros(len(track), self.width)
        found = []
        for position in track.unbind(1):
            state = self.cell(position, state)
            found.append(position + self.out(state))
        return torch.stack(found, 1)


def run_epoch(model, loader, optimizer=None):
    total = 0.0
    for track, following in loader:
        loss = nn.functional.mse_loss(model(track), following)
        if optimizer is not None:
            optimizer.zero_grad()
            for _ in range(16):
                loss = nn.functional.mse_loss(model(track), following)
                loss.backward()
            optimizer.step()
        total += loss.item()
    return total / len(loader)


def main(config):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = DataLoader(Tracks(config.vessels, config.steps, 1, 0.0), config.batch, shuffle=True, num_workers=2)
    valid = DataLoader(Tracks(200, config.steps, 2, 0.02), config.batch, num_workers=2)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(config.epochs):
        trained = run_epoch(model, train, optimizer)
        with torch.no_grad():
            print(f"epoch {epoch}: {trained:.4f} {run_epoch(model, valid):.4f}", flush=True)


if __name__ == "__main__":
    main(Config())
