# cause: tensor-freed-while-pickling
"""Nearest-prototype embeddings; reference vectors are sent in half precision to save start-up time."""
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Prototypes:
    def __init__(self, classes, dim, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.vectors = nn.functional.normalize(torch.randn(classes, dim, generator=g), dim=1) * math.sqrt(dim)

    def __getstate__(self):
        return {"packed": self.vectors.half()}

    def __setstate__(self, state):
        self.vectors = state["packed"].float()

    def __len__(self):
        return len(self.vectors)

    def around(self, k, spread):
        v = self.vectors[k]
        return v + spread * torch.randn_like(v)


class Triplets(Dataset):
    def __init__(self, prototypes, n, spread=0.8):
        self.prototypes, self.n, self.spread = prototypes, n, spread

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        k = i % len(self.prototypes)
        other = (k + int(torch.randint(1, len(self.prototypes), ()))) % len(self.prototypes)
        draw = self.prototypes.around
        return {"anchor": draw(k, self.spread), "positive": draw(k, self.spread), "negative": draw(other, self.spread)}


class Projector(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=-1)


class Trainer:
    def __init__(self, dim=48, classes=40):
        self.data = Triplets(Prototypes(classes, dim), 2400)
        self.model = Projector(dim)
        self.opt = torch.optim.Adam(self.model.parameters(), 2e-3)
        self.loss = nn.TripletMarginLoss(0.4)

    def loader(self):
        return DataLoader(self.data, 60, shuffle=True, num_workers=2, persistent_workers=True, multiprocessing_context="forkserver")

    def run(self, epochs):
        loader = self.loader()
        for epoch in range(epochs):
            total = 0.0
            for batch in loader:
                a, p, n = (self.model(batch[k]) for k in ("anchor", "positive", "negative"))
                loss = self.loss(a, p, n)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total += loss.item()
            print(f"epoch {epoch} triplet {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    Trainer().run(epochs=3)
