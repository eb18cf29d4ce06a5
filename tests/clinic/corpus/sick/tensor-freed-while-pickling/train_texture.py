# cause: tensor-freed-while-pickling
"""Texture classification with a reproducible augmentation policy."""
import argparse
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def new_stream() -> torch.Generator:
    return torch.Generator().manual_seed(2024)


@dataclass
class Policy:
    """Each worker derives its own stream from this one, see `attach`."""
    brightness: float = 0.2
    erase: int = 8
    stream: torch.Generator = field(default_factory=new_stream)

    def apply(self, x):
        gain = 1 + self.brightness * (torch.rand((), generator=self.stream) * 2 - 1)
        x = x * gain
        top, left = torch.randint(0, x.shape[-1] - self.erase, (2,), generator=self.stream).tolist()
        x[..., top:top + self.erase, left:left + self.erase] = 0
        return x


class Textures(Dataset):
    def __init__(self, n, side, policy=None):
        self.n, self.side, self.policy = n, side, policy
        self.grid = torch.linspace(0, 6.28, side)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        y = i % 3
        a, b = 1 + y, 3 - y
        x = torch.sin(a * self.grid)[:, None] * torch.cos(b * self.grid)[None]
        x = (x + 0.3 * torch.randn(self.side, self.side))[None]
        if self.policy is not None:
            x = self.policy.apply(x)
        return x, y


def attach(worker_id):
    info = torch.utils.data.get_worker_info()
    info.dataset.policy.stream.manual_seed(info.seed)


def net():
    return nn.Sequential(nn.Conv2d(1, 12, 5, 2), nn.ReLU(), nn.Conv2d(12, 24, 5, 2), nn.ReLU(),
                         nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(24, 3))


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        return sum((model(x).argmax(1) == y).sum().item() for x, y in loader) / len(loader.dataset)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n", type=int, default=900)
    ap.add_argument("--side", type=int, default=40)
    ap.add_argument("--epochs", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Textures(a.n, a.side, Policy()), 30, shuffle=True, num_workers=2,
                        worker_init_fn=attach, multiprocessing_context="spawn")
    held_out = DataLoader(Textures(150, a.side), 50)
    model = net()
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    for epoch in range(a.epochs):
        model.train()
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch}: held out {evaluate(model, held_out):.3f}", flush=True)


if __name__ == "__main__":
    main()
