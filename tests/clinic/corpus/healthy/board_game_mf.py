"""Matrix factorisation of board game ratings; the whole table fits in memory."""
import argparse

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset


class Ratings(TensorDataset):
    @classmethod
    def synthetic(cls, users, games, n, seed=0):
        g = torch.Generator().manual_seed(seed)
        u = torch.randint(0, users, (n,), generator=g)
        v = torch.randint(0, games, (n,), generator=g)
        taste = torch.randn(users, 4, generator=g)
        style = torch.randn(games, 4, generator=g)
        return cls(u, v, (taste[u] * style[v]).sum(1) + 0.3 * torch.randn(n, generator=g))


def table_loader(data, batch, shuffle, workers=0):
    base = RandomSampler(data) if shuffle else SequentialSampler(data)
    return DataLoader(data, sampler=BatchSampler(base, batch, drop_last=shuffle), batch_size=None, num_workers=workers)


class Factors(nn.Module):
    def __init__(self, users, games, dim):
        super().__init__()
        self.u, self.g = nn.Embedding(users, dim), nn.Embedding(games, dim)
        self.bu, self.bg = nn.Embedding(users, 1), nn.Embedding(games, 1)
        for e in (self.u, self.g):
            nn.init.normal_(e.weight, std=0.2)

    def forward(self, u, g):
        return (self.u(u) * self.g(g)).sum(1) + self.bu(u)[:, 0] + self.bg(g)[:, 0]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ratings", type=int, default=240_000)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=0)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    full = Ratings.synthetic(3000, 800, a.ratings)
    cut = a.ratings * 9 // 10
    train, test = (Ratings(*(t[s] for t in full.tensors)) for s in (slice(0, cut), slice(cut, None)))
    loaders = table_loader(train, a.batch, True, a.workers), table_loader(test, 4096, False, a.workers)
    model = Factors(3000, 800, 16)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(a.epochs):
        for u, g, r in loaders[0]:
            loss = (model(u, g) - r).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            se = sum((model(u, g) - r).square().sum().item() for u, g, r in loaders[1])
        print(f"epoch {epoch} rmse {(se / len(test)) ** 0.5:.4f}", flush=True)


if __name__ == "__main__":
    main()
