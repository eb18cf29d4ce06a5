"""Count fruit on orchard photographs. Files that cannot be read are sorted out while the index is built."""
import argparse
import shutil
import struct
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

HEAD = struct.Struct("<4sHHII")


class Unreadable(Exception):
    def __init__(self, path, why):
        super().__init__(path, why)
        self.path, self.why = path, why

    def __str__(self):
        return f"{self.path}: {self.why}"


def write_photo(path, pixels, fruits):
    body = zlib.compress(pixels.tobytes(), 1)
    path.write_bytes(HEAD.pack(b"ORCH", *pixels.shape[:2], zlib.crc32(body), len(fruits)) + fruits.astype("<f4").tobytes() + body)


def read_photo(path):
    blob = path.read_bytes()
    if len(blob) < HEAD.size:
        raise Unreadable(str(path), "too short")
    magic, h, w, crc, n = HEAD.unpack_from(blob)
    body = blob[HEAD.size + 8 * n:]
    if magic != b"ORCH" or zlib.crc32(body) != crc:
        raise Unreadable(str(path), "damaged")
    fruits = np.frombuffer(blob, "<f4", 2 * n, HEAD.size).reshape(n, 2)
    return np.frombuffer(zlib.decompress(body), np.uint8).reshape(h, w, 3), fruits


def harvest(folder, n):
    rng = np.random.default_rng(2)
    yy, xx = np.mgrid[:80, :80]
    for k in range(n):
        img = rng.integers(20, 90, (80, 80, 3), dtype=np.uint8)
        fruits = rng.uniform(8, 72, (int(rng.integers(0, 7)), 2)).astype(np.float32)
        for y, x in fruits:
            img[((yy - y) ** 2 + (xx - x) ** 2) < 20] = (220, 60, 40)
        path = folder / f"tree{k:04d}.orc"
        write_photo(path, img, fruits)
        if k % 97 == 13:
            path.write_bytes(path.read_bytes()[:-40])


def build_index(folder):
    good, bad = [], 0
    for path in sorted(folder.glob("*.orc")):
        try:
            read_photo(path)
            good.append(path.name)
        except Unreadable:
            bad += 1
    return good, bad


class Orchard(Dataset):
    def __init__(self, folder, names):
        self.folder, self.names = folder, names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        pixels, fruits = read_photo(self.folder / self.names[i])
        time.sleep(0.003)
        x = torch.from_numpy(pixels.astype(np.float32) / 255).permute(2, 0, 1)
        if torch.rand(()) < 0.5:
            x, fruits = x.flip(2), np.stack([fruits[:, 0], 79 - fruits[:, 1]], 1)
        return x.contiguous(), torch.from_numpy(fruits.astype(np.float32))


def collate(rows):
    """Photos have different numbers of fruit: points go into one tensor, with the row they belong to."""
    points = torch.cat([p for _, p in rows])
    owner = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor([len(p) for _, p in rows]))
    return torch.stack([x for x, _ in rows]), points, owner


class Density(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 24, 5, 2, 2), nn.ReLU(), nn.Conv2d(24, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 1, 1))

    def forward(self, x):
        return nn.functional.softplus(self.net(x)).sum((1, 2, 3)) / 100


def count_of(owner, rows):
    return torch.bincount(owner, minlength=rows).float()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch", type=int, default=12)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="orchard_"))
    try:
        harvest(folder, 300)
        names, bad = build_index(folder)
        print(f"{len(names)} photos, {bad} sorted out")
        train, val = random_split(Orchard(folder, names), [0.8, 0.2])
        loader = DataLoader(train, args.batch, shuffle=True, num_workers=2, collate_fn=collate, persistent_workers=True)
        val_loader = DataLoader(val, args.batch, num_workers=0, collate_fn=collate)
        model = Density()
        opt = torch.optim.Adam(model.parameters(), 2e-3)
        for epoch in range(args.epochs):
            for x, _, owner in loader:
                loss = nn.functional.l1_loss(model(x), count_of(owner, len(x)))
                opt.zero_grad()
                loss.backward()
                opt.step()
            with torch.no_grad():
                err = torch.cat([(model(x) - count_of(o, len(x))).abs() for x, _, o in val_loader])
            print(f"epoch {epoch} last loss {loss.item():.3f} val error {err.mean():.3f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
