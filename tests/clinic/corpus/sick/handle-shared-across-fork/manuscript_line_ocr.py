# cause: handle-shared-across-fork
"""Letter recognition on manuscript line crops that are shipped in zip archives per volume."""
import io
import os
import tempfile
import zipfile
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, random_split

ALPHABET = "abcdefghik"


@dataclass(frozen=True)
class Cfg:
    volumes: int = 2
    lines: int = 500
    epochs: int = 5
    batch: int = 16
    workers: int = 2


class Archive:
    _cache = {}

    @classmethod
    def open(cls, path):
        if path not in cls._cache:
            cls._cache[path] = zipfile.ZipFile(path)
        return cls._cache[path]


class Volume(Dataset):
    def __init__(self, path, transform=None):
        self.path = path
        self.transform = transform
        self.names = [n for n in Archive.open(path).namelist() if n.endswith(".png")]

    def __len__(self):
        return len(self.names)

    def load(self, name):
        data = Archive.open(self.path).read(name)
        return Image.open(io.BytesIO(data)).convert("L")

    def __getitem__(self, i):
        name = self.names[i]
        img = self.load(name)
        x = torch.from_numpy(np.array(img, dtype=np.float32))[None] / 255
        if self.transform is not None:
            x = self.transform(x)
        return x, ALPHABET.index(name.split("/")[0])


class InkJitter:
    def __init__(self, strength=0.1):
        self.strength = strength

    def __call__(self, x):
        return (x + self.strength * torch.randn_like(x)).clamp(0, 1)


def scan(path, cfg, seed):
    rng = np.random.default_rng(seed)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for i in range(cfg.lines):
            k = i % len(ALPHABET)
            a = rng.integers(0, 120, (64, 128), dtype=np.uint8)
            a[:, 4 + 12 * k:14 + 12 * k] += 100
            buf = io.BytesIO()
            Image.fromarray(a).save(buf, "PNG", compress_level=1)
            z.writestr(f"{ALPHABET[k]}/{i:05d}.png", buf.getvalue())


class LineNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 5, stride=2, padding=2)
        self.mid = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.fc = nn.Linear(32 * 32, len(ALPHABET))

    def forward(self, x):
        x = F.relu(self.mid(F.relu(self.stem(x))))
        return self.fc(x.mean(2).flatten(1))


def fit(cfg, root):
    paths = []
    for v in range(cfg.volumes):
        paths.append(os.path.join(root, f"volume{v}.zip"))
        scan(paths[-1], cfg, v)
    corpus = ConcatDataset([Volume(p, InkJitter()) for p in paths])
    train, test = random_split(corpus, [0.9, 0.1], generator=torch.Generator().manual_seed(0))
    mk = lambda ds, sh: DataLoader(ds, cfg.batch, shuffle=sh, num_workers=cfg.workers, persistent_workers=True)
    train, test = mk(train, True), mk(test, False)
    net = LineNet()
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    for epoch in range(cfg.epochs):
        for x, y in train:
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            acc = np.mean([(net(x).argmax(1) == y).float().mean().item() for x, y in test])
        print(f"epoch {epoch + 1}/{cfg.epochs} loss {loss.item():.3f} acc {acc:.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        fit(Cfg(), root)
