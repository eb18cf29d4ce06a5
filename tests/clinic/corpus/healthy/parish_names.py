"""Guessing the century of a parish-register entry from its spelling; the register is one packed buffer."""
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

SYLLABLES = [a + b for a in "bdfghjklmnprstvw" for b in ("a", "e", "i", "o", "u", "ey", "ar", "en")]


@dataclass
class Setup:
    entries: int = 1_500_000
    batch: int = 32
    batches: int = 80
    buckets: int = 2048
    workers: int = 2


class Register:
    """All entries back to back in one byte array, with their offsets."""

    def __init__(self, entries, seed):
        rng = np.random.default_rng(seed)
        words = np.array(SYLLABLES, dtype="S4")
        block = np.ascontiguousarray(words[rng.integers(0, len(words), (entries, 24))]).view(np.uint8).reshape(entries, -1)
        keep = block != 0
        self.offsets = np.concatenate([[0], np.cumsum(keep.sum(1))])
        self.text = block[keep]
        self.century = rng.integers(0, 4, entries).astype(np.int8)

    def __len__(self):
        return len(self.century)

    def entry(self, i):
        return self.text[self.offsets[i]:self.offsets[i + 1]].tobytes()


class Entries(Dataset):
    def __init__(self, register, buckets):
        self.register, self.buckets = register, buckets

    def __len__(self):
        return len(self.register)

    def __getitem__(self, i):
        raw = self.register.entry(i)
        century = int(self.register.century[i])
        raw = raw.replace(b"ey", b"yae") if century == 0 else raw
        counts = np.zeros(self.buckets, dtype=np.float32)
        for n in range(2, 13):
            for k in range(len(raw) - n + 1):
                h = 2166136261
                for c in raw[k:k + n]:
                    h = ((h ^ c) * 16777619) & 0xFFFFFFFF
                counts[h % self.buckets] += 1
        return torch.from_numpy(counts / np.sqrt((counts ** 2).sum() + 1e-6)), century


class Model(nn.Module):
    def __init__(self, buckets):
        super().__init__()
        self.first = nn.Linear(buckets, 32)
        self.second = nn.Linear(32, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def main(s):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Entries(Register(s.entries, 1), s.buckets)
    picks = RandomSampler(data, replacement=True, num_samples=s.batches * s.batch)
    loader = DataLoader(data, s.batch, sampler=picks, num_workers=s.workers)
    model = Model(s.buckets)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    began = time.time()
    for step, (x, y) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.05)  # stands for the device
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main(Setup())
