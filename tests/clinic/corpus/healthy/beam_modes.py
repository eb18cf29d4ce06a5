"""Damage localisation in beams from their vibration modes; a modal analysis runs for every drawn beam."""
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Beam:
    def __init__(self, elements):
        self.elements = elements
        self.mass = np.linspace(1.0, 1.2, elements)

    def stiffness(self, where, loss):
        k = np.full(self.elements + 1, 100.0)
        k[where] *= 1 - loss
        matrix = np.diag(k[:-1] + k[1:])
        matrix -= np.diag(k[1:-1], 1) + np.diag(k[1:-1], -1)
        return matrix

    def modes(self, where, loss, count):
        root = 1 / np.sqrt(self.mass)
        values, vectors = np.linalg.eigh(self.stiffness(where, loss) * np.outer(root, root))
        flex = vectors @ np.diag(1 / values) @ vectors.T
        return np.sqrt(values[:count]), np.abs(vectors[:, :count]), np.diag(flex)


class DamagedBeams(Dataset):
    def __init__(self, count, elements, modes):
        self.count, self.modes = count, modes
        self.beam = Beam(elements)
        healthy = self.beam.modes(0, 0.0, modes)
        self.reference = np.concatenate([healthy[0], healthy[2]])

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        where = int(torch.randint(1, self.beam.elements, ()))
        loss = 0.2 + 0.6 * float(torch.rand(()))
        frequency, shape, flex = self.beam.modes(where, loss, self.modes)
        change = np.concatenate([frequency, flex]) / self.reference - 1
        return torch.from_numpy(np.concatenate([change * 10, shape.mean(1)]).astype(np.float32)), where / self.beam.elements


def train(net, loader, epochs, pause):
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(epochs):
        began, total = time.time(), 0.0
        for x, y in loader:
            loss = nn.functional.smooth_l1_loss(net(x).squeeze(1), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            time.sleep(pause)
        print(f"epoch {epoch} error {total / len(loader):.4f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--beams", type=int, default=448)
    p.add_argument("--elements", type=int, default=110)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--pause", type=float, default=0.06, help="seconds a step spends on the device")
    a = p.parse_args()
    torch.manual_seed(0)
    beams = DamagedBeams(a.beams, a.elements, 12)
    batches = DataLoader(beams, 16, shuffle=True, num_workers=2, persistent_workers=True)
    train(nn.Sequential(nn.Linear(12 + 2 * a.elements, 64), nn.ReLU(), nn.Linear(64, 1)), batches, a.epochs, a.pause)
