"""Fraud detection on a small, very unbalanced table; the data fits in memory."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def make_table(n=2000, seed=0):
    g = np.random.default_rng(seed)
    y = (g.random(n) < 0.02).astype(np.int64)
    x = g.normal(size=(n, 30)).astype(np.float32)
    x[y == 1, :6] += 1.3
    return torch.from_numpy(x), torch.from_numpy(y)


class ResidualMLP(nn.Module):
    def __init__(self, width=1024, depth=4):
        super().__init__()
        self.inp = nn.Linear(30, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Dropout(0.2)) for _ in range(depth))
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        h = self.inp(x)
        for b in self.blocks:
            h = h + b(h)
        return self.out(h)


def average_precision(score, y):
    order = score.argsort(descending=True)
    hit = y[order].float()
    precision = hit.cumsum(0) / torch.arange(1, len(hit) + 1)
    return (precision * hit).sum().item() / max(1.0, hit.sum().item())


def loaders(seed):
    x, y = make_table()
    train, test = TensorDataset(x[:1600], y[:1600]), TensorDataset(x[1600:], y[1600:])
    count = torch.bincount(y[:1600]).float()
    weights = (1.0 / count)[y[:1600]].double()
    gen = torch.Generator().manual_seed(seed)
    sampler = WeightedRandomSampler(weights, num_samples=1600, replacement=True, generator=gen)
    return DataLoader(train, batch_size=100, sampler=sampler, num_workers=0), DataLoader(test, batch_size=400)


def main(epochs=25):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train, test = loaders(seed=12)
    net = ResidualMLP()
    opt = torch.optim.AdamW(net.parameters(), 3e-4, weight_decay=0.05)
    best = 0.0
    for epoch in range(epochs):
        net.train()
        fraud = seen = 0
        for x, y in train:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            fraud += y.sum().item()
            seen += len(y)
        net.eval()
        with torch.no_grad():
            scores, labels = zip(*[(net(x).softmax(1)[:, 1], y) for x, y in test])
        ap = average_precision(torch.cat(scores), torch.cat(labels))
        best = max(best, ap)
        print(f"epoch {epoch:2d} loss {loss.item():.4f} share of fraud seen {fraud / seen:.2f} AP {ap:.3f}", flush=True)
    print("best AP", round(best, 3))


main()
