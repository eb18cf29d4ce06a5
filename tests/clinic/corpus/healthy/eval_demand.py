# limits: nofile=256
"""Demand forecasting; all targets of the test period are collected for the report."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def series(stores, days):
    rng = np.random.default_rng(1)
    t = np.arange(days)
    return (np.sin(t * 2 * np.pi / 7 + rng.uniform(0, 6, (stores, 1))) + 0.1 * rng.standard_normal((stores, days))).astype(np.float32)


class Windows(Dataset):
    def __init__(self, values, history, horizon):
        self.v, self.history, self.horizon = values, history, horizon
        self.index = [(s, d) for s in range(len(values)) for d in range(0, values.shape[1] - history - horizon, 2)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        s, d = self.index[i]
        time.sleep(0.002)  # feature service
        w = torch.tensor(self.v[s, d:d + self.history + self.horizon])
        return w[:self.history].clone(), w[self.history:].clone()


class Mixer(nn.Module):
    def __init__(self, history, horizon, width=1536):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(history, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, width), nn.ReLU(), nn.Linear(width, horizon))

    def forward(self, x):
        return self.net(x)


def collect(model, loader):
    """Predictions and targets of every batch, then one big tensor of each."""
    model.eval()
    predictions, targets = [], []
    with torch.no_grad():
        for x, y in loader:
            predictions.append(model(x))
            targets.append(y.clone())
    return torch.cat(predictions), torch.cat(targets)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--history", type=int, default=28)
    ap.add_argument("--horizon", type=int, default=7)
    ap.add_argument("--epochs", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    values = series(8, 300)
    train = Windows(values[:, :200], a.history, a.horizon)
    test = Windows(values[:, 80:], a.history, a.horizon)
    train_loader = DataLoader(train, 8, shuffle=True, num_workers=2, persistent_workers=True)
    test_loader = DataLoader(test, 6, num_workers=2, persistent_workers=True)
    model = Mixer(a.history, a.horizon)
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for epoch in range(a.epochs):
        model.train()
        for x, y in train_loader:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    p, y = collect(model, test_loader)
    print(f"test mae {(p - y).abs().mean():.3f} over {len(y)} windows")


if __name__ == "__main__":
    main()
