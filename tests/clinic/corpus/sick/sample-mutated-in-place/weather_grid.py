# cause: sample-mutated-in-place
"""Next-step prediction on a small reanalysis-like grid held in shared memory."""
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def simulate(steps, channels, size):
    rs = np.random.RandomState(0)
    yy, xx = np.mgrid[0:size, 0:size] / size
    out = np.empty((steps, channels, size, size), dtype=np.float32)
    for t in range(steps):
        for c in range(channels):
            out[t, c] = 280 + 15 * np.sin(6 * xx + 0.05 * t + c) * np.cos(5 * yy) + rs.normal(0, .5, (size, size))
    return torch.from_numpy(out)


class GridDataset(Dataset):
    def __init__(self, fields, stats=None):
        self.fields = fields.share_memory_()
        if stats is None:
            stats = fields.mean((0, 2, 3)), fields.std((0, 2, 3))
        self.mean, self.std = (s.view(-1, 1, 1) for s in stats)

    def __len__(self):
        return len(self.fields) - 1

    def spectral_energy(self, x):
        energy = 0.0
        for _ in range(8):
            energy = energy + torch.fft.rfft2(x).abs().mean((1, 2))
        return energy

    def prepare(self, t):
        field = self.fields[t]
        field.sub_(self.mean).div_(self.std)
        return field

    def __getitem__(self, t):
        now, then = self.prepare(t), self.prepare(t + 1)
        return {"now": now, "then": then, "energy": self.spectral_energy(now)}


class Stepper(nn.Module):
    def __init__(self, channels, width=24):
        super().__init__()
        self.inp = nn.Conv2d(channels, width, 3, padding=1, padding_mode="circular")
        self.mid = nn.Conv2d(width, width, 3, padding=1, padding_mode="circular")
        self.out = nn.Conv2d(width, channels, 3, padding=1, padding_mode="circular")
        self.film = nn.Linear(channels, width)

    def forward(self, x, energy):
        h = torch.relu(self.inp(x)) + self.film(energy.log1p())[:, :, None, None]
        return x + self.out(torch.relu(self.mid(h)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch-size", type=int, default=8)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = GridDataset(simulate(args.steps, 4, 96))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=2, persistent_workers=True)
    model = Stepper(4)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        losses, level = [], []
        for batch in loader:
            pred = model(batch["now"], batch["energy"])
            loss = nn.functional.mse_loss(pred, batch["then"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            level.append(batch["now"].mean().item())
        print(f"epoch {epoch} loss {np.mean(losses):.4f} input mean {np.mean(level):+.2f}", flush=True)


if __name__ == "__main__":
    main()
