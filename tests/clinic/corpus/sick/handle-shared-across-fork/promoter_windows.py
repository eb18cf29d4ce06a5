# cause: handle-shared-across-fork
"""Promoter / non-promoter windows straight from a flat genome file with an .fai-like index."""
import argparse
import os
import random
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

ALPHABET = b"ACGT"


def write_genome(path, n_chrom, length, seed=1):
    rnd = random.Random(seed)
    index = {}
    with open(path, "wb") as f:
        for c in range(n_chrom):
            f.write(f">chr{c}\n".encode())
            index[f"chr{c}"] = f.tell()
            unit = bytes(rnd.choice(ALPHABET) for _ in range(4099))
            seq = bytearray((unit * (length // len(unit) + 1))[:length])
            for p in range(500, length - 500, 1000):
                seq[p:p + 8] = b"TATAAAAG"
            f.write(seq + b"\n")
    return index


class Genome:
    def __init__(self, path, index):
        self.index = index
        self.handle = open(path, "rb")

    def fetch(self, chrom, start, end):
        self.handle.seek(self.index[chrom] + start)
        return self.handle.read(end - start)


class PromoterWindows(Dataset):
    LUT = torch.zeros(256, dtype=torch.long)
    for k, base in enumerate(ALPHABET):
        LUT[base] = k + 1

    def __init__(self, genome, n_chrom, length, size=16384, count=1600):
        self.genome, self.size = genome, size
        rnd = random.Random(7)
        self.sites = []
        for _ in range(count):
            positive = rnd.random() < 0.5
            self.sites.append((f"chr{rnd.randrange(n_chrom)}", rnd.randrange(0, length - size), int(positive)))

    def __len__(self):
        return len(self.sites)

    def __getitem__(self, i):
        chrom, start, label = self.sites[i]
        seq = self.genome.fetch(chrom, start, start + self.size)
        codes = self.LUT[torch.frombuffer(bytearray(seq), dtype=torch.uint8).long()]
        onehot = torch.zeros(5, self.size)
        onehot[codes, torch.arange(len(codes))] = 1.0
        pooled = nn.functional.avg_pool1d(onehot[None], 64)[0]
        return {"x": pooled, "codes": codes.to(torch.int8), "y": label, "i": i}


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(5, 24, 9, padding=4), nn.ReLU(), nn.MaxPool1d(4), nn.Conv1d(24, 24, 5), nn.ReLU())
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        return self.out(self.body(x).amax(-1)).squeeze(-1)


def get_loader(data, batch, workers):
    sampler = RandomSampler(data, generator=torch.Generator().manual_seed(0))
    return DataLoader(data, batch_size=batch, sampler=sampler, num_workers=workers, persistent_workers=workers > 0)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--chromosomes", type=int, default=6)
    ap.add_argument("--length", type=int, default=2_000_000)
    a = ap.parse_args()
    torch.manual_seed(0)
    tmp = tempfile.TemporaryDirectory()
    path = os.path.join(tmp.name, "genome.fa")
    index = write_genome(path, a.chromosomes, a.length)
    data = PromoterWindows(Genome(path, index), a.chromosomes, a.length)
    loader = get_loader(data, 32, a.workers)
    net = ConvNet()
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    for epoch in range(a.epochs):
        loss_sum = 0.0
        for batch in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(net(batch["x"]), batch["y"].float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            loss_sum += loss.item()
        print(f"epoch {epoch} loss {loss_sum / len(loader):.4f}", flush=True)
    tmp.cleanup()


if __name__ == "__main__":
    main()
