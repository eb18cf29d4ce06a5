"""Predicts distance to mate from board images of a packed endgame file; piece art comes from a zip archive."""
import io
import os
import tempfile
import time
import zipfile

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

BOARD, CELL = 8, 12
RECORD = np.dtype([("squares", "u1", (4,)), ("depth", "<u2"), ("theme", "u1"), ("pad", "u1")])


def write_positions(path, n):
    rng = np.random.default_rng(9)
    rec = np.zeros(n, RECORD)
    rec["squares"] = rng.integers(0, 64, (n, 4))
    king, other = rec["squares"][:, 0].astype(int), rec["squares"][:, 1].astype(int)
    rec["depth"] = 3 * np.maximum(abs(king // 8 - other // 8), abs(king % 8 - other % 8)) + rec["squares"][:, 2] % 4
    rec["theme"] = rng.integers(0, 6, n)
    rec.tofile(path)


def write_art(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for theme in range(6):
            for piece in range(4):
                img = Image.new("L", (64, 64), 0)
                pen = ImageDraw.Draw(img)
                if piece % 2:
                    pen.ellipse((8 + theme, 8, 56 - 4 * piece, 56), fill=255 - 30 * piece)
                else:
                    pen.rectangle((10, 10 + theme, 50 - 5 * piece, 54), fill=250 - 40 * piece)
                buf = io.BytesIO()
                img.save(buf, "PNG")
                z.writestr(f"{theme}/{piece}.png", buf.getvalue())


class PerProcess:
    """Opens what ``opener`` opens once for each process that asks."""

    def __init__(self, opener):
        self.opener, self.pid, self.value = opener, None, None

    def __call__(self):
        if self.pid != os.getpid():
            self.pid, self.value = os.getpid(), self.opener()
        return self.value


class Positions(Dataset):
    def __init__(self, positions, art, keep, augment=False):
        with open(positions, "rb") as f:
            f.seek(0, os.SEEK_END)
            total = f.tell() // RECORD.itemsize
        self.numbers = np.array([k for k in range(total) if keep(k)])
        self.file = PerProcess(lambda: open(positions, "rb", buffering=0))
        self.art = PerProcess(lambda: zipfile.ZipFile(art))
        self.augment = augment

    def __len__(self):
        return len(self.numbers)

    def record(self, number):
        f = self.file()
        f.seek(int(number) * RECORD.itemsize)
        return np.frombuffer(f.read(RECORD.itemsize), RECORD)[0]

    def piece(self, theme, piece):
        with self.art().open(f"{theme}/{piece}.png") as f:
            return Image.open(f).convert("L").resize((CELL, CELL), Image.LANCZOS)

    def __getitem__(self, i):
        rec = self.record(self.numbers[i])
        side = BOARD * CELL
        planes = np.zeros((5, side, side), np.float32)
        planes[4] = np.kron(np.indices((BOARD, BOARD)).sum(0) % 2, np.ones((CELL, CELL)))
        angle = np.random.uniform(-4, 4) if self.augment else 0.0
        for k, square in enumerate(rec["squares"]):
            layer = Image.new("L", (side, side))
            layer.paste(self.piece(rec["theme"], k), (int(square) % 8 * CELL, int(square) // 8 * CELL))
            big = layer.resize((3 * side, 3 * side), Image.BICUBIC).rotate(angle, Image.BICUBIC)
            planes[k] = np.asarray(big.resize((side, side), Image.LANCZOS), np.float32) / 255
        return torch.from_numpy(planes), torch.tensor(float(rec["depth"]) / 10)


def net():
    return nn.Sequential(
        nn.Conv2d(5, 12, CELL, stride=CELL // 2), nn.ReLU(), nn.Conv2d(12, 16, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.LazyLinear(48), nn.ReLU(), nn.Linear(48, 1), nn.Flatten(0))


class Fit:
    epochs, batch, workers = 4, 20, 2

    def __init__(self, folder):
        positions, art = os.path.join(folder, "kqk.bin"), os.path.join(folder, "art.zip")
        write_positions(positions, 480)
        write_art(art)
        common = dict(batch_size=self.batch, num_workers=self.workers, persistent_workers=True)
        self.train = DataLoader(Positions(positions, art, lambda k: k % 6, augment=True), shuffle=True, **common)
        self.val = DataLoader(Positions(positions, art, lambda k: k % 6 == 0), **common)
        self.net = net()
        self.net(torch.zeros(1, 5, 96, 96))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def run(self):
        for epoch in range(self.epochs):
            t0 = time.perf_counter()
            self.net.train()
            for x, y in self.train:
                self.opt.zero_grad()
                nn.functional.l1_loss(self.net(x), y).backward()
                self.opt.step()
            self.net.eval()
            with torch.inference_mode():
                mae = torch.cat([(self.net(x) - y).abs() for x, y in self.val]).mean()
            print(f"epoch {epoch}: mean error {10 * mae:.2f} plies, {time.perf_counter() - t0:.2f} s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(2)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        Fit(name).run()
