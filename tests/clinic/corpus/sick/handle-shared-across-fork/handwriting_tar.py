# cause: handle-shared-across-fork
"""Writer identification on scanned words kept in one tar file."""
import functools
import io
import os
import tarfile
import tempfile

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

WRITERS = 8


def read_member(tar, member):
    with tar.extractfile(member) as f:
        return f.read()


def decode(data, size=(32, 80)):
    im = Image.open(io.BytesIO(data)).convert("L").resize(size[::-1])
    return torch.from_numpy(np.asarray(im, dtype=np.float32) / 255)[None]


class Words(Dataset):
    def __init__(self, members, load):
        self.members = members
        self.load = load
        self.writers = [int(m.name.split("-")[0]) for m in members]

    @classmethod
    def from_tar(cls, path):
        tar = tarfile.open(path)
        members = [m for m in tar.getmembers() if m.isfile()]
        return cls(members, functools.partial(read_member, tar))

    def __len__(self):
        return len(self.members)

    def __getitem__(self, i):
        return decode(self.load(self.members[i])), self.writers[i]


def build(path, n):
    rng = np.random.default_rng(4)
    with tarfile.open(path, "w") as tar:
        for i in range(n):
            w = i % WRITERS
            im = Image.fromarray(rng.integers(180, 255, (80, 200), dtype=np.uint8))
            d = ImageDraw.Draw(im)
            for k in range(5):
                x = 10 + 36 * k
                d.line([(x, 60), (x + 4 * w, 20), (x + 20, 60)], fill=0, width=1 + w % 3)
            buf = io.BytesIO()
            im.save(buf, "PNG")
            info = tarfile.TarInfo(f"{w}-{i:05d}.png")
            info.size = buf.tell()
            buf.seek(0)
            tar.addfile(info, buf)


class WriterNet(nn.Module):
    def __init__(self):
        super().__init__()
        layers, c = [], 1
        for out in (8, 16):
            layers += [nn.Conv2d(c, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
            c = out
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, WRITERS))

    def forward(self, x):
        return self.net(x)


class EarlyStop:
    def __init__(self, patience):
        self.best, self.patience, self.bad = float("inf"), patience, 0

    def __call__(self, value):
        self.bad = 0 if value < self.best else self.bad + 1
        self.best = min(self.best, value)
        return self.bad >= self.patience


def main(epochs=3, batch=16, workers=int(os.environ.get("LOADER_WORKERS", "4"))):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "words.tar")
        build(path, 560)
        data = Words.from_tar(path)
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
        train = DataLoader(Subset(data, order[:480]), batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
        held = DataLoader(Subset(data, order[480:]), 40)
        model, stop = WriterNet(), EarlyStop(2)
        opt = torch.optim.Adam(model.parameters(), lr=2e-3)
        for epoch in range(epochs):
            model.train()
            for x, y in train:
                opt.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                opt.step()
            model.eval()
            with torch.no_grad():
                loss = sum(nn.functional.cross_entropy(model(x), y).item() for x, y in held) / len(held)
            print(f"epoch {epoch} held-out loss {loss:.4f}", flush=True)
            if stop(loss):
                break


if __name__ == "__main__":
    main()
