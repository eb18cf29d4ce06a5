"""Basket completion: predict the last article of a basket; prices come from a shared price list."""
import argparse
import json
import os
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ARTICLES = 1500


class PriceList:
    """Read in the background while the baskets are being parsed."""

    def __init__(self, path):
        self.path = path
        self._guard = threading.RLock()
        self._prices = {}
        self._thread = threading.Thread(target=self._load, name="price-list")
        self._thread.start()

    def _load(self):
        with self._guard:
            with open(self.path) as f:
                self._prices = {int(k): v for k, v in json.load(f).items()}
            time.sleep(0.2)

    def ready(self):
        self._thread.join()
        return self

    def price(self, article):
        with self._guard:
            return self._prices[article]


class Baskets(Dataset):
    def __init__(self, path, prices):
        self.baskets = np.load(path)
        self.prices = prices

    def __len__(self):
        return len(self.baskets)

    def __getitem__(self, i):
        b = self.baskets[i]
        time.sleep(0.002)  # customer service lookup
        cost = np.array([self.prices.price(int(a)) for a in b[:-1]], dtype=np.float32)
        return torch.from_numpy(b[:-1].copy()), torch.from_numpy(np.log1p(cost)), int(b[-1])


class Completer(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Embedding(ARTICLES, width)
        self.mlp = nn.Sequential(nn.Linear(8 * width + 8, 1200), nn.ReLU(), nn.Linear(1200, ARTICLES))

    def forward(self, articles, cost):
        return self.mlp(torch.cat([self.embed(articles).flatten(1), cost], 1))


def shop(root, n):
    rng = np.random.default_rng(6)
    with open(os.path.join(root, "prices.json"), "w") as f:
        json.dump({i: round(float(rng.gamma(2, 3)), 2) for i in range(ARTICLES)}, f)
    np.save(os.path.join(root, "baskets.npy"), rng.integers(0, ARTICLES, (n, 9)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--baskets", type=int, default=480)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        shop(root, a.baskets)
        prices = PriceList(os.path.join(root, "prices.json"))
        model = Completer()
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        data = Baskets(os.path.join(root, "baskets.npy"), prices.ready())
        loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=a.workers, persistent_workers=True)
        for epoch in range(2):
            start = mark = time.time()
            waited = 0.0
            for articles, cost, last in loader:
                waited += time.time() - mark
                loss = nn.functional.cross_entropy(model(articles, cost), last)
                opt.zero_grad()
                loss.backward()
                opt.step()
                mark = time.time()
            print(f"epoch {epoch} loss {loss.item():.3f} {time.time() - start:.2f}s data {waited:.2f}s", flush=True)


if __name__ == "__main__":
    main()
