# cause: map-count-exhausted
# also: many-small-tensors
"""Bi-encoder reranker for subtitle lines. Tokenised lines are kept for the full-corpus retrieval pass."""
import argparse
import random
import zlib

import torch
import torch.multiprocessing
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.multiprocessing.set_sharing_strategy("file_system")

WORDS = ("the a dog cat ship moon runs falls over under quick night day I you we never always went saw heard "
         "door rain fire gone back home please stop listen again captain doctor").split()
BUCKETS = 4096


def pieces(line):
    for w in line.split():
        w = f"<{w}>"
        yield from (w[i:i + 3] for i in range(len(w) - 2))


class Lines(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        r = random.Random(i)
        line = " ".join(r.choice(WORDS) for _ in range(r.randint(3, 11)))
        return torch.tensor([zlib.crc32(p.encode()) % BUCKETS for p in pieces(line)], dtype=torch.int32)


class BiEncoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.bag = nn.EmbeddingBag(BUCKETS, dim, mode="mean")
        self.proj = nn.Linear(dim, dim)

    def forward(self, lines):
        offsets = torch.tensor([0] + [len(x) for x in lines[:-1]]).cumsum(0).int()
        return nn.functional.normalize(self.proj(self.bag(torch.cat(lines), offsets)), dim=-1)


def drop_some(lines, rate=0.3):
    return [x[torch.rand(len(x)) > rate] if len(x) > 4 else x for x in lines]


class Corpus:
    """Everything seen so far, for mean reciprocal rank against the whole set."""

    def __init__(self):
        self.lines = []

    def extend(self, lines):
        self.lines.extend(lines)

    @torch.no_grad()
    def mrr(self, net, queries=64):
        bank = torch.cat([net(self.lines[i:i + 2048]) for i in range(0, len(self.lines), 2048)])
        picks = torch.randperm(len(self.lines))[:queries]
        q = net(drop_some([self.lines[i] for i in picks]))
        sims = q @ bank.T
        rank = (sims > sims[torch.arange(len(picks)), picks][:, None]).sum(1) + 1
        return (1 / rank.double()).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--lines", type=int, default=80_000)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net, corpus = BiEncoder(), Corpus()
    opt = torch.optim.Adagrad(net.parameters(), 0.05)
    loader = DataLoader(Lines(a.lines), a.batch, shuffle=True, num_workers=a.workers, collate_fn=list)
    for step, lines in enumerate(loader):
        corpus.extend(lines)
        z, zq = net(lines), net(drop_some(lines))
        loss = nn.functional.cross_entropy(zq @ z.T * 10, torch.arange(len(lines)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.3f} lines {len(corpus.lines)}", flush=True)
    print(f"mrr {corpus.mrr(net):.3f}")


if __name__ == "__main__":
    main()
