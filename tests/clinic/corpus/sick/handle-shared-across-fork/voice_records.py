# cause: handle-shared-across-fork
"""Speaker embedding on a record file: <magic><label u4><length u4><pcm f4...> with an offset table beside it."""
import argparse
import os
import struct
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MAGIC = b"UTT1"
HEAD = struct.Struct("<4sII")


def write_records(path, n, speakers):
    rng = np.random.default_rng(9)
    offsets = []
    t = np.arange(4000, dtype=np.float32) / 8000
    with open(path, "wb") as f:
        for i in range(n):
            s = i % speakers
            m = int(rng.integers(3000, 4000))
            x = np.sin(2 * np.pi * (120 + 40 * s) * t[:m]) + 0.1 * rng.normal(size=m)
            offsets.append(f.tell())
            f.write(HEAD.pack(MAGIC, s, m) + x.astype("<f4").tobytes())
    np.save(path + ".idx.npy", np.array(offsets))


class RecordReader:
    def __init__(self, path):
        self.offsets = np.load(path + ".idx.npy")
        self.stream = open(path, "rb", buffering=0)

    def __len__(self):
        return len(self.offsets)

    def read(self, k):
        self.stream.seek(int(self.offsets[k]))
        magic, label, n = HEAD.unpack(self.stream.read(HEAD.size))
        if magic != MAGIC:
            raise ValueError(f"record {k}: bad magic {magic!r}")
        return label, np.frombuffer(self.stream.read(4 * n), dtype="<f4")


class Corpus:
    def __init__(self, path):
        self.reader = RecordReader(path)


class Utterances(Dataset):
    def __init__(self, corpus, frames=40, width=64):
        self.corpus, self.frames, self.width = corpus, frames, width
        self.window = np.hanning(width).astype(np.float32)

    def __len__(self):
        return len(self.corpus.reader)

    def __getitem__(self, i):
        label, pcm = self.corpus.reader.read(i)
        take = pcm[:self.frames * self.width].reshape(self.frames, self.width) * self.window
        feats = np.log1p(np.abs(np.fft.rfft(take, axis=1)))
        return torch.from_numpy(feats.astype(np.float32)), label


class Encoder(nn.Module):
    def __init__(self, speakers):
        super().__init__()
        self.frame = nn.Sequential(nn.Linear(33, 48), nn.ReLU())
        self.out = nn.Linear(48, speakers)

    def forward(self, x):
        return self.out(self.frame(x).mean(1))


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.seen = 0

    def epoch(self, loader):
        losses = []
        for x, y in loader:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            losses.append(loss.item())
            self.seen += len(y)
        return float(np.mean(losses))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--utterances", type=int, default=1500)
    ap.add_argument("--speakers", type=int, default=10)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=6)
    a = ap.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        path = os.path.join(root, "utts.rec")
        write_records(path, a.utterances, a.speakers)
        loader = DataLoader(Utterances(Corpus(path)), batch_size=25, shuffle=True, num_workers=a.workers, persistent_workers=a.workers > 0)
        trainer = Trainer(Encoder(a.speakers), 2e-3)
        for e in range(a.epochs):
            print(f"epoch {e} loss {trainer.epoch(loader):.4f} seen {trainer.seen}", flush=True)


if __name__ == "__main__":
    main()
