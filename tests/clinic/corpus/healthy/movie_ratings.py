"""Matrix factorisation; everything fits in memory and is indexed a batch at a time."""
import argparse

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Ratings(Dataset):
    def __init__(self, users, items, n):
        g = torch.Generator().manual_seed(0)
        self.user = torch.randint(0, users, (n,), generator=g)
        self.item = torch.randint(0, items, (n,), generator=g)
        self.stars = 3 + torch.sin(self.user.float()) + torch.cos(self.item.float())

    def __len__(self):
        return len(self.user)

    def __getitem__(self, rows):
        rows = torch.as_tensor(rows)
        return self.user[rows], self.item[rows], self.stars[rows]


class Factors(nn.Module):
    def __init__(self, users, items, dim):
        super().__init__()
        self.u, self.i = nn.Embedding(users, dim), nn.Embedding(items, dim)
        self.mix = nn.Sequential(nn.Linear(2 * dim, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, u, i):
        return self.mix(torch.cat([self.u(u), self.i(i)], -1)).squeeze(-1)


@torch.no_grad()
def rmse(model, data, rows=4000):
    u, i, stars = data[list(range(rows))]
    return (model(u, i) - stars).square().mean().sqrt().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--ratings", type=int, default=60000)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--epochs", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(1)
    data = Ratings(2000, 900, a.ratings)
    loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), a.batch, False), batch_size=None)
    model = Factors(2000, 900, 64)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(a.epochs):
        total = 0.0
        for u, i, stars in loader:
            loss = (model(u, i) - stars).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print("epoch %d mse %.4f rmse %.3f" % (epoch, total / len(loader), rmse(model, data)), flush=True)


if __name__ == "__main__":
    main()
