# cause: too-few-workers, iterator-rebuilt-each-step
# also: iterator-rebuilt-each-step, too-few-workers
"""Satellite pass detection in radio spectra, with spot checks on several antennas after every epoch."""
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Options:
    captures: int = 192
    epochs: int = 2
    latency: float = 0.016
    checks: int = 7
    antennas: tuple = ("north", "mast", "roof")
    train: dict = field(default_factory=lambda: {"batch_size": 12, "shuffle": True, "num_workers": 1, "persistent_workers": True})
    check: dict = field(default_factory=lambda: {"batch_size": 8, "shuffle": True, "num_workers": 2})


class Receiver:
    """Captures sit on the antenna's own recorder."""

    def __init__(self, name, latency):
        self.name, self.latency = name, latency

    def capture(self, n):
        time.sleep(self.latency)
        rng = np.random.default_rng(n + 7919 * len(self.name))
        spectrum = rng.normal(size=(64, 48)).astype(np.float32)
        if n % 2:
            drift = np.arange(64) // 3 + n % 20
            spectrum[np.arange(64), drift] += 3
        return spectrum, n % 2


class Captures(Dataset):
    def __init__(self, receiver, numbers):
        self.receiver, self.numbers = receiver, numbers

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, i):
        spectrum, label = self.receiver.capture(self.numbers[i])
        return torch.from_numpy(spectrum - spectrum.mean())[None], label


class SpotCheck:
    """Looks at one random batch per antenna, several times, and averages."""

    def __init__(self, loaders, times):
        self.loaders, self.times = loaders, times

    def draw(self, name):
        for batch in self.loaders[name]:
            return batch

    @torch.no_grad()
    def __call__(self, net):
        score = {}
        for name in self.loaders:
            hits = []
            for _ in range(self.times):
                x, y = self.draw(name)
                hits.append((net(x).argmax(1) == y).float().mean().item())
            score[name] = round(sum(hits) / len(hits), 2)
        return score


def main(o):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = DataLoader(Captures(Receiver("north", o.latency), range(o.captures)), **o.train)
    check = SpotCheck({n: DataLoader(Captures(Receiver(n, 0.002), range(5000, 5064)), **o.check) for n in o.antennas}, o.checks)
    net = nn.Sequential(nn.Conv2d(1, 6, (9, 5), stride=2), nn.ReLU(), nn.AdaptiveMaxPool2d(4), nn.Flatten(), nn.Linear(96, 2))
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    for epoch in range(o.epochs):
        began = time.time()
        for x, y in train:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        trained = time.time()
        score = check(net)
        print(f"epoch {epoch} loss {loss.item():.3f} {score} train {trained - began:.1f}s checks {time.time() - trained:.1f}s", flush=True)


if __name__ == "__main__":
    main(Options())
