# cause: uneven-ranks
"""Sentence classifier. Without RANK in the environment the script starts two copies of itself."""
import datetime
import os
import random
import socket
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

TEMPLATES = ["the film was {} and the cast {}", "a {} story , told in a {} way with too many words in between", "{} {}"]
GOOD, BAD = ["great", "lovely", "sharp"], ["dull", "weak", "noisy"]


class Reviews(Dataset):
    def __init__(self, n, longest=12, seed=0):
        r = random.Random(seed)
        self.rows = []
        for _ in range(n):
            label = r.randrange(2)
            words = GOOD if label else BAD
            text = r.choice(TEMPLATES).format(r.choice(words), r.choice(words)) + " really" * r.randrange(9)
            self.rows.append((text, label))
        self.longest = longest

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        text, label = self.rows[i]
        ids = []
        for w in text.split():
            h = 0
            for _ in range(150):
                for c in w:
                    h = (h * 33 + ord(c)) % 5003
            ids.append(h)
        return torch.tensor((ids + [0] * 24)[:24]), label


class RankSampler(Sampler):
    """Every rank takes its slice of the reviews, those that are too long are skipped."""

    def __init__(self, data, rank, world):
        half = len(data) // world
        mine = range(rank * half, (rank + 1) * half)
        self.indices = [i for i in mine if len(data.rows[i][0].split()) <= data.longest]

    def __iter__(self):
        order = torch.randperm(len(self.indices)).tolist()
        return (self.indices[k] for k in order)

    def __len__(self):
        return len(self.indices)


class Averager:
    """Averages gradients over ranks."""

    def __init__(self, model):
        self.params = [p for p in model.parameters() if p.requires_grad]

    def __call__(self):
        flat = torch.cat([p.grad.flatten() for p in self.params])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, g in zip(self.params, flat.split([p.numel() for p in self.params])):
            p.grad.copy_(g.view_as(p))


def train(rank, world):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Reviews(800, seed=3)
    loader = DataLoader(data, batch_size=8, sampler=RankSampler(data, rank, world), num_workers=1)
    model = nn.Sequential(nn.EmbeddingBag(5003, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
    opt, average = torch.optim.SGD(model.parameters(), lr=0.5), Averager(model)
    for ids, label in loader:
        loss = nn.functional.cross_entropy(model(ids), label)
        opt.zero_grad()
        loss.backward()
        average()
        opt.step()
    print(f"rank {rank} loss {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def launch(world):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(world))
    procs = [subprocess.Popen([sys.executable, os.path.abspath(__file__)], env=dict(env, RANK=str(r))) for r in range(world)]
    return max(abs(p.wait()) for p in procs)


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        sys.exit(launch(2))
