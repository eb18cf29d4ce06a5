"""Masked-word model over a recipe archive packed in one file with a table of contents."""
import os
import random
import tempfile
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

PANTRY = ["salt", "basil", "thyme", "oil", "flour", "egg", "cream", "onion", "garlic", "lemon", "sugar", "butter", "stock",
          "rice", "bean", "leek", "sage", "mint", "dill", "pepper"]
VOCAB = {w: k + 2 for k, w in enumerate(PANTRY)}


class Volume:
    """Random access to the entries of one packed volume; positional reads on a descriptor of the calling process."""

    def __init__(self, path):
        self.path, self.fd, self.owner = path, None, None
        with open(path, "rb") as f:
            tail = f.seek(-8, os.SEEK_END)
            start = int.from_bytes(f.read(8), "little")
            f.seek(start)
            self.toc = np.frombuffer(f.read(tail - start), dtype="<u4").reshape(-1, 3)

    def entry(self, k):
        if self.owner != os.getpid():
            self.fd, self.owner = os.open(self.path, os.O_RDONLY), os.getpid()
        offset, size, crc = (int(v) for v in self.toc[k])
        blob = os.pread(self.fd, size, offset)
        if zlib.crc32(blob) != crc:
            raise ValueError(f"entry {k} of {self.path} is damaged")
        return blob


def pack(path, count, seed):
    rng = random.Random(seed)
    toc = []
    with open(path, "wb") as f:
        for _ in range(count):
            blob = zlib.compress(" ".join(rng.choices(PANTRY, k=rng.randint(900, 1200))).encode(), 1)
            toc.append((f.tell(), len(blob), zlib.crc32(blob)))
            f.write(blob)
        start = f.tell()
        f.write(np.asarray(toc, dtype="<u4").tobytes())
        f.write(start.to_bytes(8, "little"))


class Masking:
    """Random choices come from the generator of the process, which the loader seeds for every worker and epoch."""

    def __init__(self, share):
        self.share = share

    def start(self, high):
        return int(torch.randint(0, max(high, 1), ()))

    def pick(self, n):
        return torch.rand(n) < self.share


class Recipes(Dataset):
    def __init__(self, volume, masking, length=96):
        self.volume, self.masking, self.length = volume, masking, length

    def __len__(self):
        return len(self.volume.toc)

    def __getitem__(self, k):
        words = zlib.decompress(self.volume.entry(k)).decode().split()
        ids = torch.tensor([VOCAB[w] for w in words])
        pairs = np.zeros((len(PANTRY) + 2, len(PANTRY) + 2), dtype=np.float32)
        for gap in range(1, 9):
            np.add.at(pairs, (ids[:-gap].numpy(), ids[gap:].numpy()), 1.0 / gap)
        start = self.masking.start(len(ids) - self.length)
        ids = ids[start:start + self.length]
        hide = self.masking.pick(self.length)
        return torch.where(hide, 1, ids), torch.from_numpy(np.log1p(pairs)), torch.where(hide, ids, -100)


class Filler(nn.Module):
    def __init__(self, vocab, dim=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.table = nn.Linear(vocab * vocab, dim)
        self.conv = nn.Conv1d(dim, dim, 5, padding=2)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x, pairs):
        h = self.emb(x).transpose(1, 2) + self.table(pairs.flatten(1)).unsqueeze(2)
        return self.out(torch.relu(self.conv(h) + h).transpose(1, 2))


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="spices_") as folder:
        masking = Masking(0.15)
        volumes = []
        for v in range(2):
            path = os.path.join(folder, f"volume{v}.rcp")
            pack(path, 320, seed=v)
            volumes.append(Recipes(Volume(path), masking))
        data = ConcatDataset(volumes)
        loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
        net = Filler(len(VOCAB) + 2)
        opt = torch.optim.Adam(net.parameters(), lr=3e-3)
        for epoch in range(3):
            total = 0.0
            for x, pairs, y in loader:
                loss = nn.functional.cross_entropy(net(x, pairs).flatten(0, 1), y.flatten(), ignore_index=-100)
                opt.zero_grad()
                loss.backward()
                opt.step()
                time.sleep(0.03)    # stands for the accelerator
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
