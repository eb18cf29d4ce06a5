# cause: wrong-length
"""Next-note model on streamed tunes in a small text notation."""
import argparse
import math
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

NOTES = {n: i for i, n in enumerate("C C# D D# E F F# G G# A A# B".split())}
SPAN = 64


def compose(folder: Path, tunes: int):
    rng = np.random.default_rng(88)
    names = list(NOTES)
    for k in range(tunes):
        key, at, out = rng.integers(12), 0, []
        for _ in range(SPAN * 3 + 1):
            at = (at + int(rng.choice([-2, -1, 1, 2, 4]))) % 7
            out.append(f"{names[(key + [0, 2, 4, 5, 7, 9, 11][at]) % 12]}{int(rng.integers(3, 6))}")
        (folder / f"tune{k:04d}.txt").write_text(" ".join(out))


def parse(token):
    return NOTES[token[:-1]] + 12 * (int(token[-1]) - 3)


class TuneStream(IterableDataset):
    """Reads tunes and cuts them into spans. Every loader process takes its own share of the files."""

    def __init__(self, folder: Path, transpose=True):
        self.files = sorted(folder.glob("*.txt"))
        self.transpose = transpose

    def __len__(self):
        return len(self.files)

    def share(self):
        info = get_worker_info()
        return self.files if info is None else self.files[info.id::info.num_workers]

    def spans(self, ids):
        for a in range(0, len(ids) - SPAN, SPAN):
            yield ids[a:a + SPAN + 1]

    def __iter__(self):
        for path in self.share():
            ids = np.array([parse(t) for t in path.read_text().split()])
            if self.transpose:
                ids = (ids + int(torch.randint(12, ()))) % 36
            for span in self.spans(ids):
                time.sleep(0.004)
                yield torch.from_numpy(span[:-1].copy()), torch.from_numpy(span[1:].copy())


class NoteModel(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.emb = nn.Embedding(36, dim)
        self.rnn = nn.GRU(dim, dim, 1, batch_first=True)
        self.out = nn.Linear(dim, 36)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def cosine(total):
    def factor(step):
        return 0.5 * (1 + math.cos(math.pi * min(step, total) / total))
    return factor


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tunes", type=int, default=160)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch", type=int, default=10)
    args = ap.parse_args()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp(prefix="tunes_"))
    try:
        compose(root, args.tunes)
        loader = DataLoader(TuneStream(root), args.batch, num_workers=2, persistent_workers=True)
        model = NoteModel()
        opt = torch.optim.AdamW(model.parameters(), 4e-3)
        sched = torch.optim.lr_scheduler.LambdaLR(opt, cosine(args.epochs * len(loader)))
        for epoch in range(args.epochs):
            total = steps = 0
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
                opt.zero_grad()
                loss.backward()
                opt.step()
                sched.step()
                total, steps = total + loss.item(), steps + 1
            print(f"epoch {epoch} nats {total / steps:.4f} lr {sched.get_last_lr()[0]:.5f}", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
