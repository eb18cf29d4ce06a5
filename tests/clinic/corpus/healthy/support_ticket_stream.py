"""Routes support tickets to teams; tickets are streamed from monthly files and shuffled in a buffer."""
import json
import os
import random
import tempfile
import time
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

BUCKETS, TEAMS = 1 << 14, 6
WORDS = [f"{a}{b}" for a in ("log", "pay", "net", "disk", "user", "mail") for b in ("in", "out", "age", "up", "fail", "slow", "lost")]


def write_month(path, rows, rng):
    with open(path, "w") as out:
        for _ in range(rows):
            team = rng.randrange(TEAMS)
            words = rng.choices(WORDS, k=30) + rng.choices(WORDS[team * 7:team * 7 + 7], k=8)
            rng.shuffle(words)
            out.write(json.dumps({"team": team, "text": " ".join(words)}) + "\n")


class TicketStream(IterableDataset):
    def __init__(self, paths, buffer=300):
        self.paths, self.buffer = list(paths), buffer
        self.epoch = torch.zeros((), dtype=torch.long).share_memory_()

    def set_epoch(self, epoch):
        self.epoch.fill_(epoch)

    def own_paths(self):
        paths = sorted(self.paths)
        random.Random(int(self.epoch)).shuffle(paths)
        info = get_worker_info()
        return paths if info is None else paths[info.id::info.num_workers]

    def tickets(self):
        for path in self.own_paths():
            with open(path) as lines:
                for line in lines:
                    yield json.loads(line)

    def __iter__(self):
        held = []
        for ticket in self.tickets():
            if len(held) == self.buffer:
                k = random.randrange(self.buffer)
                held[k], ticket = ticket, held[k]
                yield self.encode(ticket)
            else:
                held.append(ticket)
        random.shuffle(held)
        yield from map(self.encode, held)

    @staticmethod
    def encode(ticket):
        words = ticket["text"].split()
        grams = words + [f"{a} {b}" for a, b in zip(words, words[1:])]
        grams += [w[i:i + 3] for w in words for i in range(2)]
        return torch.tensor([zlib.crc32(g.encode()) % BUCKETS for g in grams]), ticket["team"]


class Router(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(BUCKETS, width, sparse=True)
        self.body = nn.Sequential(nn.Linear(width, 96), nn.GELU(), nn.Linear(96, width))
        self.head = nn.Linear(width, TEAMS)

    def forward(self, grams):
        tokens = self.embed(grams)
        return self.head((tokens + self.body(tokens)).mean(1))


def main(epochs=4, batch=64):
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="tickets-") as folder:
        paths = [os.path.join(folder, f"month-{k:02d}.jsonl") for k in range(12)]
        for path in paths:
            write_month(path, 512, random.Random(path[-8:]))
        stream = TicketStream(paths)
        loader = DataLoader(stream, batch_size=batch, num_workers=2, persistent_workers=True)
        model = Router()
        rows = torch.optim.SparseAdam(model.embed.parameters(), lr=2e-3)
        dense = torch.optim.Adam([*model.body.parameters(), *model.head.parameters()], lr=2e-3)
        for epoch in range(epochs):
            stream.set_epoch(epoch)
            start, seen, hits = time.perf_counter(), 0, 0
            for grams, team in loader:
                logits = model(grams)
                loss = nn.functional.cross_entropy(logits, team)
                for optimizer in (rows, dense):
                    optimizer.zero_grad()
                loss.backward()
                rows.step()
                dense.step()
                seen, hits = seen + len(team), hits + (logits.argmax(1) == team).sum().item()
            print(f"epoch {epoch}: {seen} tickets, accuracy {hits / seen:.3f}, {seen / (time.perf_counter() - start):.0f}/s", flush=True)


if __name__ == "__main__":
    main()
