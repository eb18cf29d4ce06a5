# cause: rng-repeated
# Masked-span pretraining for peptides. Small on purpose: meant for a laptop.
import random
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

ALPHABET = "ACDEFGHIKLMNPQRSTVWY"
PAD, MASK = 20, 21


@dataclass
class Config:
    n_peptides: int = 1536
    batch_size: int = 64
    epochs: int = 4
    workers: int = 2
    mask_rate: float = 0.18
    mean_span: float = 3.0
    seed: int = 7
    lr: float = 3e-3


def digest(protein: str) -> list[str]:
    """Tryptic digestion with up to two missed cleavages."""
    cuts = [0] + [k + 1 for k, c in enumerate(protein[:-1]) if c in "KR" and protein[k + 1] != "P"] + [len(protein)]
    out = []
    for i in range(len(cuts) - 1):
        for missed in range(1, 4):
            if i + missed < len(cuts):
                out.append(protein[cuts[i]:cuts[i + missed]])
    return [p for p in out if 6 <= len(p) <= 40]


class Proteome(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.codes = rng.integers(0, 20, (n, 400)).astype(np.uint8)

    def __len__(self):
        return len(self.codes)

    def __getitem__(self, i):
        protein = "".join(ALPHABET[c] for c in self.codes[i])
        peptides = digest(protein)
        # hydrophobic moment is used to rank the fragments; keep the best one
        best = max(peptides, key=self.moment, default=protein[:20])
        return [ALPHABET.index(c) for c in best]

    @staticmethod
    def moment(p):
        ang = 100 * np.pi / 180
        h = np.array([ALPHABET.index(c) - 10 for c in p], dtype=float)
        t = np.arange(len(p)) * ang
        return float(np.hypot((h * np.sin(t)).sum(), (h * np.cos(t)).sum()) / len(p))


@dataclass
class SpanMasker:
    rate: float
    mean_span: float
    seed: int
    rng: random.Random = field(init=False)

    def __post_init__(self):
        self.rng = random.Random(self.seed)

    def spans(self, n):
        hidden = set()
        while len(hidden) < max(1, round(n * self.rate)):
            length = min(n, 1 + int(self.rng.expovariate(1 / self.mean_span)))
            start = self.rng.randrange(0, n - length + 1)
            hidden.update(range(start, start + length))
        return sorted(hidden)

    def __call__(self, seqs):
        width = 40
        inp = torch.full((len(seqs), width), PAD)
        tgt = torch.full((len(seqs), width), -100)
        for row, s in enumerate(seqs):
            s = torch.tensor(s[:width])
            where = torch.tensor(self.spans(len(s)))
            inp[row, :len(s)] = s
            tgt[row, where] = s[where]
            inp[row, where] = MASK
        return inp, tgt


class TinyBert(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok, self.pos = nn.Embedding(22, d), nn.Parameter(torch.zeros(40, d))
        self.enc = nn.TransformerEncoderLayer(d, 2, 64, batch_first=True)
        self.head = nn.Linear(d, 20)

    def forward(self, x):
        return self.head(self.enc(self.tok(x) + self.pos))


def run(cfg: Config):
    torch.manual_seed(cfg.seed)
    data = Proteome(cfg.n_peptides, cfg.seed)
    collate = SpanMasker(cfg.mask_rate, cfg.mean_span, cfg.seed)
    loader = DataLoader(data, cfg.batch_size, shuffle=True, num_workers=cfg.workers, collate_fn=collate, drop_last=True)
    model = TinyBert()
    opt = torch.optim.Adam(model.parameters(), cfg.lr)
    for epoch in range(1, cfg.epochs + 1):
        seen = total = 0.0
        for inp, tgt in loader:
            loss = F.cross_entropy(model(inp).flatten(0, 1), tgt.flatten(), ignore_index=-100)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.item() * len(inp)
            seen += len(inp)
        print(f"[{epoch}/{cfg.epochs}] masked nll {total / seen:.4f}", flush=True)


if __name__ == "__main__":
    run(Config())
