# cause: uneven-ranks
"""Two-process data-parallel training of a toy translation scorer, with batches cut by token budget."""
import argparse
import datetime
import os
import random
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

VOCAB = 500


class Corpus(Dataset):
    def __init__(self, n, seed):
        r = random.Random(seed)
        self.lengths = [min(60, 4 + int(r.expovariate(1 / 14))) for _ in range(n)]
        self.seed = seed

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100_003 + i)
        src = torch.randint(1, VOCAB, (self.lengths[i],), generator=g)
        time.sleep(0.002)
        tgt = (src.flip(0) * 7 + 3) % VOCAB
        good = int(torch.rand((), generator=g) < 0.5)
        return src, tgt if good else tgt.roll(2), good


class TokenBudget(Sampler):
    """Consecutive sentences of this process's share, as many as fit in the budget."""

    def __init__(self, lengths, budget, rank, world):
        self.share = [(i, lengths[i]) for i in range(rank, len(lengths), world)]
        self.budget = budget
        self.epoch = 0
        self.rank = rank

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        share = list(self.share)
        random.Random(self.epoch * 31 + self.rank).shuffle(share)
        batch, longest = [], 0
        for i, n in share:
            longest = max(longest, n)
            if batch and longest * (len(batch) + 1) > self.budget:
                yield batch
                batch, longest = [], n
            batch.append(i)
        if batch:
            yield batch


def collate(rows):
    src, tgt, good = zip(*rows)
    return pad_sequence(src, batch_first=True), pad_sequence(tgt, batch_first=True), torch.tensor(good, dtype=torch.float32)


class Scorer(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.enc = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Bilinear(dim, dim, 1)

    def forward(self, src, tgt):
        return self.out(self.enc(self.emb(src))[1][-1], self.enc(self.emb(tgt))[1][-1]).squeeze(1)


def worker(rank, args, rendezvous):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=args.world,
                            timeout=datetime.timedelta(seconds=args.patience))
    data = Corpus(args.sentences, seed=6)
    sampler = TokenBudget(data.lengths, args.budget, rank, args.world)
    loader = DataLoader(data, batch_sampler=sampler, num_workers=1, collate_fn=collate, persistent_workers=True)
    model = DistributedDataParallel(Scorer())
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for src, tgt, good in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(src, tgt), good)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch} loss {total[0] / total[1]:.4f}", flush=True)
            torch.save(model.module.state_dict(), os.path.join(os.path.dirname(rendezvous), "last.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--world", type=int, default=2)
    p.add_argument("--sentences", type=int, default=640)
    p.add_argument("--budget", type=int, default=500)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--patience", type=int, default=6)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="pairs_") as tmp:
        mp.start_processes(worker, (args, os.path.join(tmp, "store")), args.world, start_method="fork")
