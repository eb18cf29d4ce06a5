# cause: copy-on-write-growth
import os
import random
import shutil
import string
import tempfile
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


@dataclass
class Config:
    lines: int = 1_300_000
    group: int = 900
    seq: int = 64
    batch: int = 8
    workers: int = 2
    epochs: int = 4
    hidden: int = 96


def write_corpus(path, n):
    rng = random.Random(0)
    vocab = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 9))) for _ in range(3000)]
    with open(path, "w") as f:
        for start in range(0, n, 10000):
            words = rng.choices(vocab, k=20000)
            f.write("".join("%s %s %d\n" % (words[2 * i], words[2 * i + 1], start + i) for i in range(10000)))


class TextSource:
    def __init__(self, path):
        with open(path) as f:
            self.rows = f.read().splitlines()

    def passage(self, start, stop):
        return [r for r in self.rows[start:stop] if r and not r.startswith("#")]


class Passages(Dataset):
    def __init__(self, source, cfg):
        self.source = source
        self.cfg = cfg

    def __len__(self):
        return len(self.source.rows) // self.cfg.group

    def __getitem__(self, i):
        rows = self.source.passage(i * self.cfg.group, (i + 1) * self.cfg.group)
        raw = "\n".join(rows).encode()
        offset = int(torch.randint(0, len(raw) - self.cfg.seq - 1, ()))
        ids = torch.frombuffer(bytearray(raw[offset:offset + self.cfg.seq + 1]), dtype=torch.uint8).long()
        hist = torch.bincount(torch.frombuffer(bytearray(raw), dtype=torch.uint8).long(), minlength=256).float()
        return {"x": ids[:-1], "y": ids[1:], "unigram": hist / hist.sum()}


class ByteLM(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.emb = nn.Embedding(256, 64)
        self.ctx = nn.Linear(256, 64)
        self.conv = nn.Conv1d(64, hidden, 5)
        self.head = nn.Linear(hidden, 256)

    def forward(self, x, unigram):
        h = self.emb(x) + self.ctx(unigram)[:, None]
        h = nn.functional.pad(h.transpose(1, 2), (4, 0))
        return self.head(torch.relu(self.conv(h)).transpose(1, 2))


def run_epoch(model, loader, opt=None):
    total, n = 0.0, 0
    for b in loader:
        with torch.set_grad_enabled(opt is not None):
            logits = model(b["x"], b["unigram"])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), b["y"].flatten())
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            opt.step()
        total, n = total + loss.item(), n + 1
    return total / max(n, 1)


def main():
    cfg = Config()
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="bytelm_")
    try:
        path = os.path.join(folder, "corpus.txt")
        write_corpus(path, cfg.lines)
        full = Passages(TextSource(path), cfg)
        cut = int(len(full) * 0.97)
        train, valid = Subset(full, range(cut)), Subset(full, range(cut, len(full)))
        loader = DataLoader(train, cfg.batch, shuffle=True, num_workers=cfg.workers, persistent_workers=True)
        held_out = DataLoader(valid, cfg.batch)
        model = ByteLM(cfg.hidden)
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(cfg.epochs):
            print("epoch %d train %.3f valid %.3f" % (epoch, run_epoch(model, loader, opt), run_epoch(model, held_out)))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
