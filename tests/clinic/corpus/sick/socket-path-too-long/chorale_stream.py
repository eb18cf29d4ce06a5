# cause: socket-path-too-long, iterable-not-sharded
# limits: tmpdir=long
# arguments: --passes 2
# Next-note model over generated four-part chorales, streamed from text shards.
import argparse
import pathlib
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

PAD, BOS, EOS = 0, 1, 2
LOW, HIGH = 36, 84
SCALE = [0, 2, 4, 5, 7, 9, 11]


def compose(rng, bars):
    key, degree = int(rng.integers(0, 12)), 0
    lines = []
    for _ in range(bars * 4):
        degree = (degree + int(rng.choice([-2, -1, 1, 2, 3]))) % 7
        chord = [SCALE[(degree + k) % 7] + key for k in (0, 2, 4, 7)]
        voices = [48 + c % 12 + 7 * v for v, c in enumerate(chord)]
        lines.append(" ".join(str(min(HIGH, max(LOW, n))) for n in voices))
    return ";".join(lines)


def write_shards(folder, shards, pieces):
    rng = np.random.default_rng(4)
    for s in range(shards):
        with open(folder / f"chorales-{s:03d}.txt", "w") as out:
            for _ in range(pieces):
                out.write(compose(rng, int(rng.integers(6, 14))) + "\n")


class Chorales(IterableDataset):
    def __init__(self, folder, pattern="*.txt", window=96, transpose=True):
        super().__init__()
        self.files = sorted(pathlib.Path(folder).glob(pattern))
        self.window = window
        self.transpose = transpose

    def tokens(self, line):
        notes = [int(n) for chord in line.strip().split(";") for n in chord.split()]
        shift = int(torch.randint(-3, 4, ())) if self.transpose else 0
        return [BOS] + [min(HIGH, max(LOW, n + shift)) - LOW + 3 for n in notes] + [EOS]

    def features(self, tokens):
        """Interval profile: how often each interval occurs within the last 32 notes."""
        profile = np.zeros((len(tokens), 12), dtype=np.float32)
        for i in range(1, len(tokens)):
            recent = tokens[max(0, i - 32):i]
            for r in recent:
                profile[i, (tokens[i] - r) % 12] += 1
            profile[i] /= len(recent)
        return profile

    def __iter__(self):
        for path in self.files:
            with open(path) as handle:
                for line in handle:
                    ids = self.tokens(line)
                    profile = self.features(ids)
                    for start in range(0, len(ids) - 1, self.window):
                        yield ids[start:start + self.window + 1], profile[start:start + self.window + 1]


def pad_windows(batch):
    longest = max(len(ids) for ids, _ in batch)
    ids = torch.full((len(batch), longest), PAD)
    profile = torch.zeros(len(batch), longest, 12)
    for k, (i, p) in enumerate(batch):
        ids[k, :len(i)] = torch.tensor(i)
        profile[k, :len(i)] = torch.from_numpy(p)
    return {"ids": ids, "profile": profile}


class NoteModel(nn.Module):
    def __init__(self, vocab=HIGH - LOW + 4, width=48):
        super().__init__()
        self.embed = nn.Embedding(vocab, width, padding_idx=PAD)
        self.profile = nn.Linear(12, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, vocab)

    def forward(self, ids, profile):
        h, _ = self.rnn(self.embed(ids) + self.profile(profile))
        return self.out(h)


def step(model, batch):
    ids = batch["ids"]
    logits = model(ids[:, :-1], batch["profile"][:, :-1])
    return F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], ignore_index=PAD)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--passes", type=int, default=2)
    cli.add_argument("--workers", type=int, default=2)
    cli.add_argument("--batch", type=int, default=24)
    opts = cli.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="chorales") as name:
        folder = pathlib.Path(name)
        write_shards(folder, shards=6, pieces=60)
        loader = DataLoader(Chorales(folder), batch_size=opts.batch, collate_fn=pad_windows,
                            num_workers=opts.workers, persistent_workers=True)
        model = NoteModel()
        opt = torch.optim.RMSprop(model.parameters(), lr=3e-3)
        for p in range(opts.passes):
            total = windows = 0
            for batch in loader:
                loss = step(model, batch)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item() * len(batch["ids"])
                windows += len(batch["ids"])
            print(f"pass {p}: {windows} windows, nll {total / windows:.3f}", flush=True)


if __name__ == "__main__":
    main()
