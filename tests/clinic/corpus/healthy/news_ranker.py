"""Ranks headlines for readers: sampled negatives, a validation stream of known length, padded batches."""
import dataclasses
import re
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, get_worker_info


@dataclasses.dataclass
class Setup:
    headlines: int = 500
    readers: int = 600
    vocabulary: int = 3000
    batch: int = 24
    epochs: int = 3
    workers: int = 2
    seed: int = 19


STEMS = "market river vote storm goal court bank film virus train school budget league energy border trade museum rocket tax farm".split()
ENDINGS = ["", "s", "er", "ing", "ed", "-plan", "-talks"]


class Desk:
    """Headlines of the day with their bodies, and hashed character n-grams of both."""

    def __init__(self, s):
        g = np.random.default_rng(s.seed)
        self.size, self.vocabulary = s.headlines, s.vocabulary
        self.topic = g.integers(0, len(STEMS), s.headlines)
        picks = g.integers(0, len(STEMS), (s.headlines, 60))
        self.bodies = np.array([" ".join(STEMS[self.topic[h] if k % 3 else picks[h, k]] + ENDINGS[(h * k) % 7] for k in range(60)) for h in range(s.headlines)])

    def encode(self, h):
        words = re.findall(r"[a-z]+", str(self.bodies[h]))[:24 + int(h) % 36]
        ids = []
        for w in words:
            w = f"<{w}>"
            ids += [1 + zlib.crc32(w[i:i + n].encode()) % (self.vocabulary - 1) for n in (3, 4, 5) for i in range(max(1, len(w) - n))]
        return torch.tensor(ids, dtype=torch.int32)


class Sessions(Dataset):
    """One row per reader: what was read; a row is a reading, one click and some headlines passed over."""

    def __init__(self, desk, readers, seed, passed=4, history=6):
        g = np.random.default_rng(seed)
        self.desk, self.passed, self.history = desk, passed, history
        self.read = np.stack([g.permutation(np.flatnonzero(np.isin(desk.topic, g.choice(len(STEMS), 3, replace=False))))[:history + 1] for _ in range(readers)])

    def __len__(self):
        return len(self.read)

    def unread(self, row):
        known = set(row.tolist())
        order = iter(np.random.permutation(self.desk.size).tolist())
        out = []
        while len(out) < self.passed:
            h = next((h for h in order if h not in known), None)
            if h is None:
                break
            out.append(h)
        return out

    def __getitem__(self, i):
        row = self.read[i]
        history = torch.cat([self.desk.encode(h) for h in row[:-1]])
        return history, [self.desk.encode(h) for h in [row[-1], *self.unread(row)]]


class Evening(IterableDataset):
    """Readers of the evening edition, each once, dealt out among the workers."""

    def __init__(self, sessions, keep=0.5):
        self.sessions = sessions
        self.rows = np.flatnonzero(np.random.default_rng(0).random(len(sessions)) < keep)

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        info = get_worker_info()
        rows = self.rows if info is None else self.rows[info.id::info.num_workers]
        for r in rows:
            yield self.sessions[int(r)]


def pad(items):
    history = pad_sequence([h for h, _ in items], batch_first=True)
    options = pad_sequence([o for _, many in items for o in many], batch_first=True)
    return history, options.view(len(items), -1, options.shape[1])


class Ranker(nn.Module):
    def __init__(self, vocabulary, width=32):
        super().__init__()
        self.emb = nn.Embedding(vocabulary, width, padding_idx=0)
        self.user = nn.Linear(width, width)

    def encode(self, ids):
        return self.emb(ids).sum(-2) / (ids > 0).sum(-1, keepdim=True).clamp(min=1)

    def forward(self, history, options):
        return (self.encode(options) * self.user(self.encode(history))[:, None]).sum(-1) * 4


def main(s=Setup()):
    torch.manual_seed(s.seed)
    torch.set_num_threads(1)
    desk = Desk(s)
    train = ConcatDataset([Sessions(desk, s.readers, 1), Sessions(desk, s.readers, 2)])
    common = dict(batch_size=s.batch, num_workers=s.workers, collate_fn=pad, persistent_workers=s.workers > 0)
    train_loader = DataLoader(train, shuffle=True, **common)
    val_loader = DataLoader(Evening(Sessions(desk, 600, 3)), **common)
    model = Ranker(s.vocabulary)
    opt = torch.optim.Adagrad(model.parameters(), 0.05)
    for epoch in range(s.epochs):
        t, losses = time.time(), []
        for history, options in train_loader:
            score = model(history, options)
            loss = nn.functional.cross_entropy(score, torch.zeros(len(score), dtype=torch.long))
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        first = total = 0
        with torch.no_grad():
            for history, options in val_loader:
                first += (model(history, options).argmax(1) == 0).sum().item()
                total += len(history)
        print(f"epoch {epoch} loss {np.mean(losses):.3f}, clicked ranked first {first / total:.3f} of {total}, {time.time() - t:.1f} s", flush=True)


if __name__ == "__main__":
    main()
