# cause: nested-workers
"""Byte model on a blend of sources.  Each source is read by its own reader, the blend interleaves them."""
import os
import tempfile
from itertools import islice

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, get_worker_info

READER = dict(batch_size=8, num_workers=1, prefetch_factor=4)


class Source(Dataset):
    def __init__(self, path, span):
        self.path, self.span = path, span
        self.size = os.path.getsize(path) // span

    def __len__(self):
        return self.size

    def __getitem__(self, k):
        with open(self.path, "rb") as f:
            f.seek(k * self.span)
            b = np.frombuffer(f.read(self.span), dtype=np.uint8)
        lower = np.where((b >= 65) & (b <= 90), b + 32, b)
        counts = np.bincount(lower, minlength=256)
        noisy = np.where(np.random.rand(len(lower)) < 0.01 * (counts[lower] > 3), 32, lower)
        return torch.from_numpy(noisy.astype(np.int64))


class Blend(IterableDataset):
    """Draws from the sources in proportion to their weights until `total` blocks were given out."""

    def __init__(self, sources, weights, total, options):
        self.sources, self.weights, self.total, self.options = sources, weights, total, options

    def blocks(self, source, part, parts):
        mine = Subset(source, range(part, len(source), parts))
        while True:
            for group in DataLoader(mine, shuffle=True, **self.options):
                yield from group

    def __iter__(self):
        info = get_worker_info()
        part, parts = (info.id, info.num_workers) if info else (0, 1)
        streams = [self.blocks(s, part, parts) for s in self.sources]
        p = np.asarray(self.weights) / sum(self.weights)
        for _ in range(self.total // parts):
            yield next(streams[np.random.choice(len(streams), p=p)])


class ByteModel(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.emb = nn.Embedding(256, dim)
        self.conv = nn.Conv1d(dim, dim, 8)
        self.out = nn.Linear(dim, 256)

    def forward(self, x):
        h = nn.functional.pad(self.emb(x).transpose(1, 2), (7, 0))
        return self.out(torch.relu(self.conv(h)).transpose(1, 2))


def write_sources(folder):
    rng = np.random.default_rng(55)
    for name, words in {"mail": "dear regards please thanks", "wiki": "the article city born", "code": "def return import self"}.items():
        path = os.path.join(folder, name + ".txt")
        with open(path, "w") as f:
            f.write(" ".join(rng.choice(words.split(), size=9000)))
        yield path


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="blend_") as folder:
        sources = [Source(path, 256) for path in write_sources(folder)]
        probe = list(islice(Blend(sources, (1, 1, 1), 6, READER), 6))
        print("block length", len(probe[0]), "bytes in use", len(torch.cat(probe).unique()), flush=True)
        loader = DataLoader(Blend(sources, (3, 2, 1), 480, READER), batch_size=16, num_workers=2, persistent_workers=True)
        net = ByteModel()
        opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
        for epoch in range(2):
            for x in loader:
                loss = nn.functional.cross_entropy(net(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten())
                opt.zero_grad()
                loss.backward()
                opt.step()
            print(f"epoch {epoch} bits per byte {loss.item() / 0.6931:.3f}", flush=True)


if __name__ == "__main__":
    main()
