# cause: handle-shared-across-fork
# also: rng-repeated
"""Masked-word model over a recipe archive packed in one file with a table of contents."""
import io
import os
import random
import tempfile
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

PANTRY = ["salt", "basil", "thyme", "oil", "flour", "egg", "cream", "onion", "garlic", "lemon", "sugar", "butter", "stock",
          "rice", "bean", "leek", "sage", "mint", "dill", "pepper"]
VOCAB = {w: k + 2 for k, w in enumerate(PANTRY)}


class Volume:
    """Random access to the entries of one packed volume."""

    def __init__(self, path):
        self.raw = io.BufferedReader(io.FileIO(path), buffer_size=512)
        tail = os.path.getsize(path) - 8
        self.raw.seek(tail)
        start = int.from_bytes(self.raw.read(8), "little")
        self.raw.seek(start)
        self.toc = np.frombuffer(self.raw.read(tail - start), dtype="<u4").reshape(-1, 3)

    def entry(self, k):
        offset, size, crc = (int(v) for v in self.toc[k])
        parts = []
        self.raw.seek(offset)
        while size > 0:
            chunk = self.raw.read(min(size, 256))
            if not chunk:
                break
            parts.append(chunk)
            size -= len(chunk)
        return b"".join(parts), crc


def pack(path, count, seed):
    rng = random.Random(seed)
    toc = []
    with open(path, "wb") as f:
        for _ in range(count):
            words = rng.choices(PANTRY, k=rng.randint(600, 900))
            blob = zlib.compress(" ".join(words).encode(), 1)
            toc.append((f.tell(), len(blob), zlib.crc32(blob)))
            f.write(blob)
        start = f.tell()
        f.write(np.asarray(toc, dtype="<u4").tobytes())
        f.write(start.to_bytes(8, "little"))


class Recipes(Dataset):
    def __init__(self, volume, masking, length=96):
        self.volume, self.masking, self.length = volume, masking, length

    def __len__(self):
        return len(self.volume.toc)

    def __getitem__(self, k):
        blob, _ = self.volume.entry(k)
        words = zlib.decompress(blob).decode().split()
        ids = torch.tensor([VOCAB[w] for w in words])
        start = self.masking.start(len(ids) - self.length)
        ids = ids[start:start + self.length]
        hide = self.masking.pick(self.length)
        return torch.where(hide, 1, ids), torch.where(hide, ids, -100)


class Masking:
    def __init__(self, share, seed):
        self.share = share
        self.rng = np.random.default_rng(seed)

    def start(self, high):
        return int(self.rng.integers(0, max(high, 1)))

    def pick(self, n):
        return torch.from_numpy(self.rng.random(n) < self.share)


class Filler(nn.Module):
    def __init__(self, vocab, dim=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.conv = nn.Conv1d(dim, dim, 5, padding=2)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        h = self.emb(x).transpose(1, 2)
        return self.out(torch.relu(self.conv(h) + h).transpose(1, 2))


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="recipes_") as folder:
        masking = Masking(0.15, seed=99)
        volumes = []
        for v in range(2):
            path = os.path.join(folder, f"volume{v}.rcp")
            pack(path, 800, seed=v)
            volumes.append(Recipes(Volume(path), masking))
        loader = DataLoader(ConcatDataset(volumes), batch_size=16, shuffle=True, num_workers=6)
        net = Filler(len(VOCAB) + 2)
        opt = torch.optim.Adam(net.parameters(), lr=3e-3)
        for epoch in range(3):
            total = 0.0
            for x, y in loader:
                loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten(), ignore_index=-100)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
