# cause: workers-not-worth-it
"""Prototype learning on a bitmap font: glyphs are packed bits, a batch is one small balanced group."""
import dataclasses
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


@dataclasses.dataclass
class Plan:
    letters: int = 26
    variants: int = 400
    pairs_per_group: int = 3
    groups: int = 1500
    epochs: int = 2
    loader: dict = dataclasses.field(default_factory=lambda: {"num_workers": 2, "persistent_workers": True})


class FontSheet:
    def __init__(self, plan, seed=0):
        rng = np.random.default_rng(seed)
        shapes = rng.random((plan.letters, 16, 16)) < 0.35
        flips = rng.random((plan.letters, plan.variants, 16, 16)) < 0.06
        self.bits = np.packbits(shapes[:, None] ^ flips, axis=-1)


class Glyphs(Dataset):
    def __init__(self, sheet):
        bits = np.unpackbits(sheet.bits, axis=-1)
        self.images = torch.from_numpy(bits.reshape(-1, 256)).float().sub_(0.5)
        self.labels = torch.arange(bits.shape[0]).repeat_interleave(bits.shape[1])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class BalancedGroups(Sampler):
    def __init__(self, plan):
        self.plan = plan

    def __len__(self):
        return self.plan.groups

    def __iter__(self):
        p = self.plan
        for _ in range(p.groups):
            letters = torch.randint(0, p.letters, (p.pairs_per_group,)) * p.variants
            yield (letters[:, None] + torch.randint(0, p.variants, (p.pairs_per_group, 2))).flatten().tolist()


class Prototypes(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.bank = nn.Parameter(torch.randn(letters, 256) * 0.1)

    def forward(self, x):
        return x @ self.bank.t()


def train(plan):
    torch.manual_seed(6)
    torch.set_num_threads(1)
    loader = DataLoader(Glyphs(FontSheet(plan)), batch_sampler=BalancedGroups(plan), **plan.loader)
    model = Prototypes(plan.letters)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(plan.epochs):
        began, right, seen = time.time(), 0, 0
        for x, y in loader:
            scores = model(x)
            loss = nn.functional.cross_entropy(scores, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += (scores.argmax(1) == y).sum()
            seen += len(y)
        print(f"epoch {epoch} accuracy {right.item() / seen:.3f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    train(Plan())
