# cause: bad-sample
"""Predict the outcome of court filings from docket metadata and a bag of words."""
import datetime as dt
import hashlib
import json
import os
import random
import tempfile
from functools import partial

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

WORDS = "motion appeal dismissed granted order judge party contract breach damages patent merger estate claim counsel".split()


def bag(text, dim):
    v = torch.zeros(dim)
    for w in text.split():
        v[int(hashlib.blake2b(w.encode(), digest_size=4).hexdigest(), 16) % dim] += 1
    return v.log1p()


def years_since(day, ref="2024-06-30"):
    if day in ("", "n/a"):
        return None
    return (dt.date.fromisoformat(ref) - dt.date.fromisoformat(day)).days / 365.25


class Docket(Dataset):
    def __init__(self, path, featurise):
        self.path, self.featurise = path, featurise
        with open(path) as f:
            self.lines = f.read().splitlines()

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        r = json.loads(self.lines[i])
        return {
            "words": self.featurise(r["text"]),
            "meta": {"pages": float(r["pages"]), "age": years_since(r["filed"]), "court": r["court"]},
            "won": r["won"],
        }


def write_docket(path, n, court, seed):
    rnd = random.Random(seed)
    with open(path, "w") as f:
        for k in range(n):
            won = rnd.random() < 0.5
            words = rnd.choices(WORDS, k=400) + ["granted"] * (20 * won)
            day = dt.date(2010, 1, 1) + dt.timedelta(days=rnd.randrange(5000))
            filed = "n/a" if court == 2 and k % 173 == 90 else day.isoformat()
            f.write(json.dumps({"text": " ".join(words), "pages": rnd.randrange(1, 90), "filed": filed, "court": court, "won": int(won)}) + "\n")
    return path


class Net(nn.Module):
    def __init__(self, dim, courts):
        super().__init__()
        self.court = nn.Embedding(courts, 8)
        self.mlp = nn.Sequential(nn.Linear(dim + 10, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 1))

    def forward(self, b):
        m = b["meta"]
        extra = torch.stack([m["pages"] / 50, m["age"] / 10], 1).float()
        return self.mlp(torch.cat([b["words"], extra, self.court(m["court"])], 1)).squeeze(1)


def make_loader(folder, split, sizes, **kw):
    parts = [Docket(write_docket(os.path.join(folder, f"{split}_{c}.jsonl"), n, c, hash((split == "train", c))), partial(bag, dim=512)) for c, n in enumerate(sizes)]
    return DataLoader(ConcatDataset(parts), **kw)


def main():
    torch.manual_seed(9)
    with tempfile.TemporaryDirectory() as folder:
        train = make_loader(folder, "train", (300, 300, 300), batch_size=30, shuffle=True, num_workers=2, persistent_workers=True)
        val = make_loader(folder, "val", (60, 60, 60), batch_size=60, num_workers=2, persistent_workers=True)
        net = Net(512, 3)
        opt = torch.optim.Adagrad(net.parameters(), 0.02)
        for epoch in range(4):
            for batch in train:
                loss = nn.functional.binary_cross_entropy_with_logits(net(batch), batch["won"].float())
                opt.zero_grad(); loss.backward(); opt.step()
            with torch.no_grad():
                right = sum(int(((net(b) > 0).long() == b["won"]).sum()) for b in val)
            print(f"epoch {epoch}: loss {loss.item():.3f} val {right}/180", flush=True)


if __name__ == "__main__":
    main()
