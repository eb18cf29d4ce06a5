# cause: fd-exhausted
"""Two-tower retrieval with a pool of recent items as hard negatives."""
import collections
import json
import os
import resource
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


def apply_job_limits(profile: dict) -> None:
    """Same ceilings as on the shared training hosts."""
    for key, soft in profile.items():
        which = getattr(resource, "RLIMIT_" + key)
        _, hard = resource.getrlimit(which)
        resource.setrlimit(which, (soft, hard))


class ClickLog(Dataset):
    FIELDS = ("user", "item", "context", "price", "label")

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as fh:
            self.starts = [0]
            for line in fh:
                self.starts.append(self.starts[-1] + len(line))
        self.starts.pop()
        self._fh = None

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        if self._fh is None or self._fh[0] != os.getpid():
            self._fh = (os.getpid(), open(self.path, "rb"))
        fh = self._fh[1]
        fh.seek(self.starts[i])
        row = json.loads(fh.readline())
        ctx = np.zeros(16, np.float32)
        for tok in row["query"].split():
            ctx[hash_token(tok) % 16] += 1
        return {"user": row["u"], "item": row["i"], "context": torch.from_numpy(ctx),
                "price": np.float32(row["p"]), "label": np.float32(row["y"])}


def hash_token(tok):
    h = 2166136261
    for c in tok.encode():
        h = (h ^ c) * 16777619 & 0xFFFFFFFF
    return h


class Towers(nn.Module):
    def __init__(self, users, items, dim=24):
        super().__init__()
        self.u, self.i = nn.Embedding(users, dim), nn.Embedding(items, dim)
        self.c, self.p = nn.Linear(16, dim), nn.Linear(1, dim)

    def query(self, b):
        return F.normalize(self.u(b["user"]) + self.c(b["context"]), dim=1)

    def doc(self, b):
        return F.normalize(self.i(b["item"]) + self.p(b["price"][:, None]), dim=1)


class NegativePool:
    def __init__(self, batches):
        self.pool = collections.deque(maxlen=batches)

    def draw(self, model, k=3):
        if len(self.pool) < k:
            return None
        pick = np.random.choice(len(self.pool), k, replace=False)
        return torch.cat([model.doc(self.pool[p]) for p in pick])


def write_log(path, rows, users, items):
    rng = np.random.default_rng(2)
    words = [f"w{k}" for k in range(300)]
    with open(path, "w") as fh:
        for _ in range(rows):
            fh.write(json.dumps({"u": int(rng.integers(users)), "i": int(rng.integers(items)), "p": round(float(rng.random()), 3),
                                 "y": int(rng.random() < 0.3), "query": " ".join(rng.choice(words, 12))}) + "\n")


def main():
    apply_job_limits({"NOFILE": 256, "CORE": 0})
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "clicks.jsonl")
        write_log(path, 6000, 500, 900)
        loader = DataLoader(ClickLog(path), batch_size=32, shuffle=True, num_workers=2, drop_last=True)
        model, pool = Towers(500, 900), NegativePool(batches=120)
        opt = torch.optim.Adagrad(model.parameters(), 0.05)
        for step, batch in enumerate(loader):
            q, d = model.query(batch), model.doc(batch)
            logits = [q @ d.t()]
            neg = pool.draw(model)
            if neg is not None:
                logits.append(q @ neg.t())
            loss = F.cross_entropy(torch.cat(logits, 1) * 8, torch.arange(len(q)))
            opt.zero_grad()
            loss.backward()
            opt.step()
            pool.pool.append(batch)
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
