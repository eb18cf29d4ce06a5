# cause: lock-held-at-fork
"""A feature store whose statistics are refreshed by a thread."""

import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset


class FeatureStore:
    def __init__(self, n):
        self.table = torch.randn(n, 12)
        self.guard = threading.Lock()
        self.mean = torch.zeros(12)
        threading.Thread(target=self._keep_fresh, name="stats", daemon=True).start()

    def _keep_fresh(self):
        while True:
            with self.guard:
                self.mean = self.table.mean(0)
                time.sleep(0.05)

    def lookup(self, i):
        with self.guard:
            return self.table[i] - self.mean


class Users(Dataset):
    def __init__(self):
        self.store = FeatureStore(400)

    def __len__(self):
        return 400

    def __getitem__(self, i):
        return self.store.lookup(i), i % 2


def main():
    loader = DataLoader(Users(), batch_size=20, shuffle=True, num_workers=3)
    model = torch.nn.Linear(12, 2)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(3):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
