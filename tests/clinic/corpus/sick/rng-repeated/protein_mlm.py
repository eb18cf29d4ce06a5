# cause: rng-repeated
"""Masked residue model on synthetic protein families."""
import math
import random
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ALPHABET = "ACDEFGHIKLMNPQRSTVWY"
PAD, MASK = 20, 21


@dataclass(frozen=True)
class Settings:
    families: int = 12
    per_family: int = 32
    length: int = 80
    rate: float = 0.15
    batch: int = 16
    epochs: int = 3
    workers: int = 2
    seed: int = 1234


def mutate(parent, r, p=0.2):
    return "".join(r.choice(ALPHABET) if r.random() < p else c for c in parent)


class Families(Dataset):
    def __init__(self, s: Settings):
        r = random.Random(s.seed)
        parents = ["".join(r.choices(ALPHABET, k=s.length)) for _ in range(s.families)]
        self.seqs = [mutate(p, r) for p in parents for _ in range(s.per_family)]
        self.table = {c: i for i, c in enumerate(ALPHABET)}

    def __len__(self):
        return len(self.seqs)

    def profile(self, ids):
        """Windowed composition, used as a side input."""
        hot = nn.functional.one_hot(torch.tensor(ids), 20).float()
        return nn.functional.avg_pool1d(hot.T[None], 9, stride=1, padding=4)[0].T.contiguous()

    def __getitem__(self, i):
        ids = [self.table[c] for c in self.seqs[i]]
        time.sleep(0.003)
        return torch.tensor(ids), self.profile(ids)


class MaskingCollator:
    def __init__(self, rate, seed):
        self.rate = rate
        self.dice = random.Random(seed)

    def positions(self, length):
        return sorted(self.dice.sample(range(length), max(1, int(self.rate * length))))

    def __call__(self, rows):
        ids = torch.stack([r[0] for r in rows])
        profile = torch.stack([r[1] for r in rows])
        target = torch.full_like(ids, -100)
        for b in range(len(rows)):
            at = self.positions(ids.shape[1])
            target[b, at] = ids[b, at]
            for p in at:
                u = self.dice.random()
                if u < 0.8:
                    ids[b, p] = MASK
                elif u < 0.9:
                    ids[b, p] = self.dice.randrange(20)
            profile[b, at] = 0
        return {"ids": ids, "profile": profile, "target": target}


class Encoder(nn.Module):
    def __init__(self, length, dim=64):
        super().__init__()
        self.emb = nn.Embedding(22, dim, padding_idx=PAD)
        self.side = nn.Linear(20, dim)
        self.pos = nn.Parameter(torch.randn(length, dim) / math.sqrt(dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 128, batch_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(dim, 20)

    def forward(self, b):
        return self.out(self.body(self.emb(b["ids"]) + self.side(b["profile"]) + self.pos))


def main(s=Settings()):
    torch.manual_seed(s.seed)
    torch.set_num_threads(1)
    loader = DataLoader(Families(s), s.batch, shuffle=True, drop_last=True, num_workers=s.workers, persistent_workers=True,
                        collate_fn=MaskingCollator(s.rate, s.seed))
    model = Encoder(s.length)
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    warm = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, 20)
    for epoch in range(s.epochs):
        nll = count = 0
        for b in loader:
            loss = nn.functional.cross_entropy(model(b).flatten(0, 1), b["target"].flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            warm.step()
            nll += loss.item()
            count += 1
        print(f"epoch {epoch} perplexity {math.exp(nll / count):.3f}", flush=True)


if __name__ == "__main__":
    main()
