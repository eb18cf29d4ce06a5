"""Sentiment on product reviews; all texts live in one byte buffer with an offset table."""
import random
import re

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GOOD = "great solid lovely sturdy crisp quick reliable neat".split()
BAD = "broken flimsy noisy late dull leaky cheap wrong".split()
FILL = [f"word{k}" for k in range(500)]


class PackedTexts:
    def __init__(self, texts):
        blobs = [t.encode() for t in texts]
        self.offset = np.zeros(len(blobs) + 1, np.int64)
        np.cumsum([len(b) for b in blobs], out=self.offset[1:])
        self.data = np.frombuffer(b"".join(blobs), np.uint8)

    def __len__(self):
        return len(self.offset) - 1

    def __getitem__(self, i):
        return self.data[self.offset[i]:self.offset[i + 1]].tobytes().decode()


def invent(n, rnd):
    for _ in range(n):
        y = rnd.random() < 0.5
        words = rnd.choices(FILL, k=240) + rnd.choices(GOOD if y else BAD, k=6)
        rnd.shuffle(words)
        yield " ".join(words), y


class Reviews(Dataset):
    buckets = 4096

    def __init__(self, n, seed):
        texts, y = zip(*invent(n, random.Random(seed)))
        self.texts, self.y = PackedTexts(texts), np.array(y, np.float32)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        words = re.findall(r"[a-z]+\d*", self.texts[i])
        bag = np.zeros(self.buckets, np.float32)
        for a, b in zip(words, words[1:] + [""]):
            for gram in (a, a + " " + b, a[:3], a[-3:]):
                h = 2166136261
                for ch in gram.encode():
                    h = ((h ^ ch) * 16777619) & 0xFFFFFFFF
                bag[h % self.buckets] += 1
        return torch.from_numpy(np.log1p(bag)), self.y[i]


def evaluate(net, loader):
    with torch.inference_mode():
        return torch.cat([(net(x).squeeze(1) > 0) == (y > 0.5) for x, y in loader]).float().mean().item()


def main():
    torch.manual_seed(9)
    shared = dict(num_workers=2, persistent_workers=True)
    train = DataLoader(Reviews(2000, 1), batch_size=32, shuffle=True, **shared)
    test = DataLoader(Reviews(400, 2), batch_size=64, **shared)
    net = nn.Linear(4096, 1)
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(3):
        for x, y in train:
            loss = nn.functional.binary_cross_entropy_with_logits(net(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.3f} test {evaluate(net, test):.3f}", flush=True)


if __name__ == "__main__":
    main()
