# cause: iterable-not-sharded
"""Routes support tickets to a team. Tickets are streamed from the JSONL exports of several help desks."""
import argparse
import json
import random
import re
import tempfile
import time
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import ChainDataset, DataLoader, IterableDataset

TEAMS = ["billing", "network", "hardware", "accounts"]
WORDS = {
    "billing": "invoice charge refund card payment tax receipt overdue".split(),
    "network": "vpn wifi router dns latency packet proxy tunnel".split(),
    "hardware": "screen battery keyboard dock fan cable disk monitor".split(),
    "accounts": "password login reset token locked user role access".split(),
}
FILLER = "please help since today the my is not working again thanks hello team still after update".split()


@dataclass
class Config:
    desks: int = 4
    tickets_per_desk: int = 450
    buckets: int = 8192
    max_tokens: int = 48
    width: int = 512
    batch_size: int = 64
    workers: int = 2
    epochs: int = 4
    lr: float = 5e-4


def export_desks(folder, cfg):
    rnd = random.Random(5)
    paths = []
    for d in range(cfg.desks):
        path = folder / f"desk_{d}.jsonl"
        with path.open("w") as f:
            for n in range(cfg.tickets_per_desk):
                team = rnd.choice(TEAMS)
                body = rnd.choices(FILLER, k=rnd.randint(10, 30)) + rnd.choices(WORDS[team], k=4)
                rnd.shuffle(body)
                f.write(json.dumps({"id": f"{d}-{n}", "body": " ".join(body), "team": team}) + "\n")
        paths.append(path)
    return paths


class Tokenizer:
    pattern = re.compile(r"[a-z]+")

    def __init__(self, buckets, max_tokens):
        self.buckets, self.max_tokens = buckets, max_tokens

    def __call__(self, text):
        words = self.pattern.findall(text.lower())
        grams = words + [a + "_" + b for a, b in zip(words, words[1:])]
        return [1 + zlib.crc32(g.encode()) % (self.buckets - 1) for g in grams][:self.max_tokens]


class DeskExport(IterableDataset):
    """One help desk's export, line by line."""

    def __init__(self, path, tokenizer):
        self.path, self.tokenizer = path, tokenizer

    def __iter__(self):
        with open(self.path) as f:
            for line in f:
                ticket = json.loads(line)
                yield self.tokenizer(ticket["body"]), TEAMS.index(ticket["team"])


class ShuffleBuffer(IterableDataset):
    def __init__(self, source, size=512):
        self.source, self.size = source, size

    def __iter__(self):
        buffer = []
        for item in self.source:
            if len(buffer) < self.size:
                buffer.append(item)
                continue
            j = random.randrange(self.size)
            buffer[j], item = item, buffer[j]
            yield item
        random.shuffle(buffer)
        yield from buffer


class PadCollate:
    def __init__(self, length):
        self.length = length

    def __call__(self, items):
        ids = torch.zeros(len(items), self.length, dtype=torch.long)
        for row, (tokens, _) in enumerate(items):
            ids[row, :len(tokens)] = torch.tensor(tokens)
        return ids, torch.tensor([team for _, team in items])


class Router(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.EmbeddingBag(cfg.buckets, 128, padding_idx=0, mode="mean")
        w = cfg.width
        self.head = nn.Sequential(nn.Linear(128, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(),
                                  nn.Dropout(0.1), nn.Linear(w, len(TEAMS)))

    def forward(self, ids):
        return self.head(self.emb(ids))


class RoutingTrainer:
    def __init__(self, cfg, paths):
        self.cfg = cfg
        tok = Tokenizer(cfg.buckets, cfg.max_tokens)
        stream = ShuffleBuffer(ChainDataset([DeskExport(p, tok) for p in paths]))
        self.loader = DataLoader(stream, batch_size=cfg.batch_size, num_workers=cfg.workers,
                                 collate_fn=PadCollate(cfg.max_tokens), persistent_workers=True)
        self.model = Router(cfg)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)

    def fit(self):
        for epoch in range(self.cfg.epochs):
            began, hits, teams, running = time.time(), 0, Counter(), 0.0
            for step, (ids, team) in enumerate(self.loader, 1):
                logits = self.model(ids)
                loss = nn.functional.cross_entropy(logits, team)
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                self.opt.step()
                running += loss.item()
                hits += (logits.argmax(1) == team).sum().item()
                teams.update(team.tolist())
            print(f"epoch {epoch}: {step} steps, loss {running / step:.4f}, accuracy {hits / sum(teams.values()):.3f}, "
                  f"busiest team {TEAMS[teams.most_common(1)[0][0]]}, {time.time() - began:.1f}s", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    cfg = Config(epochs=args.epochs, workers=args.workers)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        RoutingTrainer(cfg, export_desks(Path(tmp), cfg)).fit()


if __name__ == "__main__":
    main()
