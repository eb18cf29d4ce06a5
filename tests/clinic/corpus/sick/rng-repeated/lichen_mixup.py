# cause: rng-repeated
"""Lichen species from bark photographs. Batches are blended in pairs before they reach the network."""
import argparse
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

SPECIES = 5


def photograph(folder: Path, count: int):
    rng = np.random.default_rng(90)
    for k in range(count):
        s = int(rng.integers(SPECIES))
        bark = rng.normal(90, 25, (48, 48, 3))
        for r, c in rng.integers(6, 42, (4 + 3 * s, 2)):
            bark[r - 3:r + 3, c - 3:c + 3] = (60 * s % 255, 170, 250 - 40 * s)
        Image.fromarray(bark.clip(0, 255).astype(np.uint8)).save(folder / f"{k:04d}_{s}.png")


class Photographs(Dataset):
    def __init__(self, folder: Path):
        self.paths = sorted(folder.glob("*.png"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with Image.open(self.paths[i]) as img:
            img = ImageEnhance.Contrast(img).enhance(1.3)
        time.sleep(0.003)
        y = torch.zeros(SPECIES)
        y[int(self.paths[i].stem[-1])] = 1
        return torch.from_numpy(np.array(img)).permute(2, 0, 1).float() / 255, y


@dataclass
class Blend:
    alpha: float = 0.6
    side: float = 0.5
    seed: int = 0
    state: np.random.RandomState = field(init=False, repr=False)

    def __post_init__(self):
        self.state = np.random.RandomState(self.seed)

    def box(self, size, lam):
        edge = int(size * np.sqrt(1 - lam))
        r, c = self.state.randint(0, size - edge + 1, 2)
        return slice(r, r + edge), slice(c, c + edge), 1 - edge * edge / size ** 2

    def __call__(self, samples):
        x, y = default_collate(samples)
        order = torch.from_numpy(self.state.permutation(len(x)))
        lam = self.state.beta(self.alpha, self.alpha)
        if self.state.rand() < self.side:
            rows, cols, lam = self.box(x.shape[-1], lam)
            mixed = x.clone()
            mixed[:, :, rows, cols] = x[order][:, :, rows, cols]
        else:
            mixed = lam * x + (1 - lam) * x[order]
        return mixed, lam * y + (1 - lam) * y[order]


def network():
    return nn.Sequential(nn.Conv2d(3, 24, 3, 2), nn.ReLU(), nn.Conv2d(24, 48, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(768, SPECIES))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--photographs", type=int, default=320)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--alpha", type=float, default=0.6)
    args = ap.parse_args()
    torch.manual_seed(24)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        photograph(Path(tmp), args.photographs)
        data = Photographs(Path(tmp))
        loader = DataLoader(data, 16, shuffle=True, collate_fn=Blend(args.alpha), num_workers=2, persistent_workers=True)
        net = network()
        opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
        for epoch in range(args.epochs):
            losses = []
            for x, y in loader:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
            print(f"epoch {epoch}: loss {np.mean(losses):.4f}", flush=True)


if __name__ == "__main__":
    main()
