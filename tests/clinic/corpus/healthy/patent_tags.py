"""Patent tagging; the texts live in one byte buffer with offsets."""
import random
import zlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Cfg:
    docs: int = 1200
    dim: int = 1024
    batch: int = 6
    workers: int = 2
    epochs: int = 1


class PackedText:
    """Strings in one uint8 array; item access makes a fresh str."""

    def __init__(self, strings):
        blobs = [s.encode() for s in strings]
        self.ends = np.cumsum([len(b) for b in blobs])
        self.buffer = np.frombuffer(b"".join(blobs), np.uint8).copy()

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, i):
        start = self.ends[i - 1] if i else 0
        return self.buffer[start:self.ends[i]].tobytes().decode()


def corpus(n):
    rng = random.Random(3)
    words = ["term%d" % k for k in range(3000)]
    for _ in range(n):
        yield " ".join(rng.choices(words, k=800))


class Patents(Dataset):
    def __init__(self, texts, dim):
        self.texts, self.dim = texts, dim

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        counts = np.zeros(self.dim, np.float32)
        words = self.texts[i].split()
        for a, b in zip(words, words[1:]):
            counts[zlib.crc32(a.encode()) % self.dim] += 1
            counts[zlib.crc32((a + "_" + b).encode()) % self.dim] += 0.5
        return torch.from_numpy(np.log1p(counts)), torch.tensor([float(counts[0] > 1), float(counts[1] > 1)])


def main():
    cfg = Cfg()
    torch.set_num_threads(1)
    data = Patents(PackedText(corpus(cfg.docs)), cfg.dim)
    loader = DataLoader(data, cfg.batch, shuffle=True, num_workers=cfg.workers, drop_last=True)
    model = nn.Sequential(nn.Linear(cfg.dim, 1280), nn.GELU(), nn.Linear(1280, 1024), nn.GELU(), nn.Linear(1024, 2))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for epoch in range(cfg.epochs):
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 50 == 0:
                print("epoch %d step %d loss %.4f" % (epoch, step, loss.item()), flush=True)


if __name__ == "__main__":
    main()
