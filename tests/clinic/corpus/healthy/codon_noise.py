"""Denoising codon model. The corrupting collate owns a random.Random which every worker reseeds for itself."""
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

BASES = "ACGT"
CODON = {a + b + c: 16 * i + 4 * j + k for i, a in enumerate(BASES) for j, b in enumerate(BASES) for k, c in enumerate(BASES)}


class Genes(Dataset):
    def __init__(self, n, length=900):
        self.raw = np.random.default_rng(0).integers(0, 4, (n, length), dtype=np.uint8)

    def __len__(self):
        return len(self.raw)

    def frame(self, dna):
        """Reading frame with the fewest stops."""
        best, stops = 0, 10 ** 9
        for f in range(3):
            n = sum(dna[k:k + 3] in ("TAA", "TAG", "TGA") for k in range(f, len(dna) - 2, 3))
            if n < stops:
                best, stops = f, n
        return best

    def __getitem__(self, i):
        dna = "".join(BASES[b] for b in self.raw[i])
        f = self.frame(dna)
        return [CODON[dna[k:k + 3]] for k in range(f, len(dna) - 2, 3)][:298]


class Corrupt:
    def __init__(self, rate, seed):
        self.rate, self.rng = rate, random.Random(seed)

    def reseed(self, seed):
        self.rng.seed(seed)

    def __call__(self, rows):
        clean = torch.tensor(rows)
        noisy = clean.clone()
        for r in noisy:
            for k in self.rng.sample(range(len(r)), int(self.rate * len(r))):
                r[k] = self.rng.randrange(64)
        return noisy, clean


def init_worker(_):
    info = get_worker_info()
    corrupt.reseed(info.seed)


corrupt = Corrupt(0.15, seed=31)


class Denoiser(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.e = nn.Embedding(64, d)
        self.c = nn.Conv1d(d, d, 9, padding=4)
        self.o = nn.Linear(d, 64)

    def forward(self, x):
        h = self.c(self.e(x).transpose(1, 2)).relu().transpose(1, 2)
        return self.o(h)


def main():
    torch.manual_seed(31)
    loader = DataLoader(Genes(1200), batch_size=40, shuffle=True, num_workers=2, collate_fn=corrupt, worker_init_fn=init_worker,
                        persistent_workers=True)
    net = Denoiser()
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    for epoch in range(3):
        losses = []
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: {np.mean(losses):.4f} over {len(losses)} batches", flush=True)


if __name__ == "__main__":
    main()
