"""Two processes train on court decisions of very different length; both agree on the number of batches before each epoch."""
import argparse
import datetime
import os
import random
import tempfile
import time
from itertools import islice

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

WORDS = 800


class Decisions(Dataset):
    def __init__(self, n, seed):
        r = random.Random(seed)
        self.length = [min(90, 8 + int(r.expovariate(1 / 20))) for _ in range(n)]

    def __len__(self):
        return len(self.length)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        y = i % 3
        time.sleep(0.003)
        return torch.randint(1 + y * 200, WORDS - (2 - y) * 200, (self.length[i],), generator=g), y


class BudgetBatches:
    def __init__(self, lengths, budget, rank, world):
        self.items = list(range(rank, len(lengths), world))
        self.lengths, self.budget, self.rank = lengths, budget, rank
        self.plan = []

    def prepare(self, epoch):
        order = list(self.items)
        random.Random(epoch * 97 + self.rank).shuffle(order)
        self.plan, batch, longest = [], [], 0
        for i in order:
            longest = max(longest, self.lengths[i])
            if batch and longest * (len(batch) + 1) > self.budget:
                self.plan.append(batch)
                batch, longest = [], self.lengths[i]
            batch.append(i)
        self.plan.append(batch)
        common = torch.tensor(len(self.plan))
        dist.all_reduce(common, op=dist.ReduceOp.MIN)
        self.plan = list(islice(self.plan, int(common)))

    def __iter__(self):
        return iter(self.plan)

    def __len__(self):
        return len(self.plan)


def collate(rows):
    return pad_sequence([r[0] for r in rows], batch_first=True), torch.tensor([r[1] for r in rows])


class Model(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.emb = nn.Embedding(WORDS, dim, padding_idx=0)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, 3)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0].mean(1))


def work(rank, args, store):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60))
    data = Decisions(args.cases, 4)
    batches = BudgetBatches(data.length, args.budget, rank, 2)
    loader = DataLoader(data, batch_sampler=batches, collate_fn=collate, num_workers=1, persistent_workers=True)
    model = DistributedDataParallel(Model())
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    for epoch in range(args.epochs):
        batches.prepare(epoch)
        stats = torch.zeros(2)
        for ids, y in loader:
            out = model(ids)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            stats += torch.tensor([(out.argmax(1) == y).sum().item(), len(y)])
        dist.all_reduce(stats)
        if rank == 0:
            print(f"epoch {epoch} batches {len(batches)} accuracy {stats[0] / stats[1]:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--cases", type=int, default=700)
    p.add_argument("--budget", type=int, default=600)
    p.add_argument("--epochs", type=int, default=2)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="cases_") as tmp:
        mp.start_processes(work, (args, os.path.join(tmp, "store")), 2, start_method="fork")
