# cause: lock-serialises-workers
# also: not-fed-fast-enough
"""Click-through-rate model; user embeddings come from the feature service."""
import hashlib
import multiprocessing
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class ServiceConfig:
    latency: float = 0.005
    max_inflight: int = 1
    dim: int = 32


class FeatureService:
    def __init__(self, cfg):
        self.cfg = cfg
        self.slots = multiprocessing.BoundedSemaphore(cfg.max_inflight)

    def lookup(self, key):
        self.slots.acquire()
        try:
            time.sleep(self.cfg.latency)
            digest = hashlib.shake_128(key.encode()).digest(self.cfg.dim)
        finally:
            self.slots.release()
        return torch.tensor(list(digest), dtype=torch.float32) / 128 - 1


def enricher(service, prefix):
    def enrich(uid):
        return service.lookup("%s:%d" % (prefix, uid))
    return enrich


class Impressions(Dataset):
    def __init__(self, n, features):
        g = torch.Generator().manual_seed(1)
        self.users = torch.randint(0, 5000, (n,), generator=g)
        self.items = torch.randint(0, 800, (n,), generator=g)
        self.clicks = (torch.rand(n, generator=g) < 0.2).float()
        self.features = features

    def __len__(self):
        return len(self.users)

    def __getitem__(self, i):
        uid = int(self.users[i])
        parts = [f(uid) for f in self.features]
        return {"user": torch.cat(parts), "item": self.items[i], "click": self.clicks[i]}


class TwoTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.item = nn.Embedding(800, 64)
        self.user = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, b):
        return (self.user(b["user"]) * self.item(b["item"])).sum(-1)


def main():
    torch.set_num_threads(1)
    cfg = ServiceConfig()
    service = FeatureService(cfg)
    data = Impressions(600, [enricher(service, "profile"), enricher(service, "recent")])
    loader = DataLoader(data, batch_size=20, shuffle=True, num_workers=4)
    model = TwoTower(2 * cfg.dim)
    opt = torch.optim.Adagrad(model.parameters(), lr=0.02)
    seen, start = 0, time.time()
    for batch in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(batch), batch["click"])
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen += len(batch["click"])
        if seen % 200 == 0:
            print("%d impressions, loss %.3f, %.0f/s" % (seen, loss.item(), seen / (time.time() - start)), flush=True)


if __name__ == "__main__":
    main()
