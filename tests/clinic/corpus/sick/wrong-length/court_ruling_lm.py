# cause: wrong-length
"""Character-level language model over court rulings, streamed document by document."""
import argparse
import math
import re
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

CLAUSES = [
    "the court finds that the appellant has not shown sufficient cause",
    "pursuant to section {n} of the act, the motion is denied",
    "the respondent shall pay damages in the amount of {n} thousand",
    "counsel for the defence argued at length on article {n}",
    "having heard the parties on the {n}th day of the hearing",
    "judgment of the lower court is affirmed in part, reversed in part",
]
CHARS = " abcdefghijklmnopqrstuvwxyz0123456789.,;:()-'\n"
INDEX = {c: i for i, c in enumerate(CHARS)}


def write_corpus(root, files, rulings_per_file, seed):
    rng = np.random.default_rng(seed)
    for k in range(files):
        rulings = []
        for _ in range(rulings_per_file):
            body = [CLAUSES[rng.integers(len(CLAUSES))].format(n=rng.integers(1, 99))
                    for _ in range(rng.integers(12, 40))]
            rulings.append(".  ".join(body).capitalize() + ".")
        Path(root, f"volume_{k:02d}.txt").write_text("\n\n\n".join(rulings))


class RulingStream(IterableDataset):
    """Each worker takes whole volumes; a ruling is cut into blocks for the model."""

    def __init__(self, volumes, block):
        self.volumes = list(volumes)
        self.block = block
        self.rulings = sum(len(v.read_text().split("\n\n\n")) for v in self.volumes)

    def __len__(self):
        return self.rulings

    def clean(self, text):
        text = re.sub(r"\s+", " ", text.lower())
        text = re.sub(r"section (\d+)", r"s. \1", text)
        text = re.sub(r"(\d+) thousand", lambda m: str(int(m.group(1)) * 1000), text)
        return "".join(c for c in text if c in INDEX)

    def encode(self, text):
        return [INDEX[c] for c in text]

    def surprise(self, ids):
        """Running n-gram statistics, orders 1 to 4 interpolated: a weight for every position."""
        counts, totals = defaultdict(int), defaultdict(int)
        out = np.zeros(len(ids), dtype=np.float32)
        for t, token in enumerate(ids):
            p = 1.0 / len(CHARS)
            for order in range(4):
                context = tuple(ids[max(t - order, 0):t])
                p = (counts[context, token] + 2.0 * p) / (totals[context] + 2.0)
                counts[context, token] += 1
                totals[context] += 1
            out[t] = -math.log(p)
        return out / (out.mean() + 1e-6)

    def __iter__(self):
        info = get_worker_info()
        mine = self.volumes if info is None else self.volumes[info.id::info.num_workers]
        for volume in mine:
            for ruling in volume.read_text().split("\n\n\n"):
                ids = self.encode(self.clean(ruling))
                weight = self.surprise(ids)
                for start in range(0, len(ids) - self.block - 1, self.block):
                    piece = torch.tensor(ids[start:start + self.block + 1])
                    yield piece[:-1], piece[1:], torch.from_numpy(weight[start + 1:start + self.block + 1].copy())


class CharModel(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, len(CHARS))

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


def weighted_loss(logits, target, weight):
    each = nn.functional.cross_entropy(logits.transpose(1, 2), target, reduction="none")
    return (each * weight).sum() / weight.sum()


def cosine(step, total):
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(step / total, 1.0)))


def fit(args, folder):
    volumes = sorted(folder.glob("*.txt"))
    stream = RulingStream(volumes, args.block)
    loader = DataLoader(stream, batch_size=args.batch_size, num_workers=args.workers, drop_last=True)
    steps = len(loader)
    model = CharModel()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: cosine(s, steps * args.epochs))
    print(f"{len(volumes)} volumes, {steps} steps per epoch")
    for epoch in range(args.epochs):
        began, mean = time.time(), 0.0
        for step, (x, y, w) in enumerate(loader, 1):
            loss = weighted_loss(model(x), y, w)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            mean += (loss.item() - mean) / step
            if step % 50 == 0:
                print(f"  {epoch}: {step}/{steps} loss {mean:.3f} lr {sched.get_last_lr()[0]:.5f}", flush=True)
        print(f"epoch {epoch} done, loss {mean:.3f}, {time.time() - began:.1f} s", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--volumes", type=int, default=12)
    ap.add_argument("--rulings", type=int, default=16)
    ap.add_argument("--block", type=int, default=128)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        write_corpus(tmp, args.volumes, args.rulings, seed=4)
        fit(args, Path(tmp))


if __name__ == "__main__":
    main()
