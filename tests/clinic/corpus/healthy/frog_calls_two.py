"""Frog call classifier; the clips stay in memory and the transforms work in place on a copy."""
import logging
from collections import OrderedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, WeightedRandomSampler

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("frogs")


class InPlace:
    """Base of all transforms that write into their argument."""

    def apply_(self, x):
        raise NotImplementedError

    def __call__(self, x):
        self.apply_(x)
        return x


class Level(InPlace):
    def apply_(self, x):
        x.mul_(torch.empty(1).uniform_(0.6, 1.7))


class RemoveOffset(InPlace):
    def apply_(self, x):
        x.sub_(x.mean())


class Dropout(InPlace):
    def apply_(self, x):
        k = int(torch.randint(0, x.numel() - 800, ()))
        x[k:k + 800] = 0


class Rain(InPlace):
    def apply_(self, x):
        x.add_(torch.randn(x.shape), alpha=0.03)


class Pond(Dataset):
    def __init__(self, clips=480, length=16000):
        rng = np.random.default_rng(8)
        self.species = rng.choice(4, clips, p=[0.5, 0.3, 0.15, 0.05])
        t = np.arange(length) / 8000
        call = np.stack([np.sin(2 * np.pi * (500 + 300 * s) * t) * (np.sin(2 * np.pi * (2 + s) * t) > 0) for s in range(4)])
        self.waves = torch.from_numpy(call.astype(np.float32)[self.species])
        self.window = torch.hann_window(1024)

    def __len__(self):
        return len(self.species)

    def fetch(self, i):
        return self.waves[i].clone()

    def spectrum(self, x):
        return torch.stft(x, 1024, 64, window=self.window, return_complex=True).abs()[:128, ::2].log1p()


class Augmented(Dataset):
    def __init__(self, pond, *transforms):
        self.pond, self.transforms = pond, transforms

    def __len__(self):
        return len(self.pond)

    def __getitem__(self, i):
        x = self.pond.fetch(i)
        for t in self.transforms:
            x = t(x)
        return self.pond.spectrum(x).contiguous(), int(self.pond.species[i])


def build(workers=2, batch=24):
    pond = Pond()
    order = np.random.default_rng(1).permutation(len(pond)).tolist()
    fit = Subset(Augmented(pond, RemoveOffset(), Level(), Dropout(), Rain()), order[:400])
    test = Subset(Augmented(pond, RemoveOffset()), order[400:])
    freq = np.bincount(pond.species[order[:400]], minlength=4)
    sampler = WeightedRandomSampler((1.0 / freq)[pond.species[order[:400]]].tolist(), 400)
    opts = dict(batch_size=batch, num_workers=workers, persistent_workers=True)
    return DataLoader(fit, sampler=sampler, **opts), DataLoader(test, **opts)


def network():
    return nn.Sequential(OrderedDict(
        a=nn.Conv1d(128, 288, 5, padding=2), ar=nn.ReLU(), b=nn.Conv1d(288, 288, 5, padding=2), br=nn.ReLU(),
        c=nn.Conv1d(288, 192, 5, padding=2), cr=nn.ReLU(), p=nn.AdaptiveAvgPool1d(1), f=nn.Flatten(), o=nn.Linear(192, 4)))


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    train, test = build()
    model = network()
    opt = torch.optim.AdamW(model.parameters(), 5e-4)
    for epoch in range(4):
        tot, level = 0.0, 0.0
        for x, y in train:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot, level = tot + loss.item(), level + x.mean().item()
        with torch.no_grad():
            acc = torch.cat([(model(x).argmax(1) == y).float() for x, y in test]).mean().item()
        log.info("epoch %d loss %.4f level %.4f acc %.3f", epoch, tot / len(train), level / len(train), acc)


if __name__ == "__main__":
    main()
