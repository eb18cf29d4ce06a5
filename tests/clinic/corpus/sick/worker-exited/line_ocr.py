# cause: worker-exited
"""Text line recognition: per-column letter classification on rendered strips."""
import argparse
import os
import string
import sys
import tempfile

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

ALPHABET = string.ascii_lowercase + " "


def fatal(message, code=2):
    sys.stdout.write(message + "\n")
    sys.stdout.flush()
    sys.exit(code)


class Charset:
    def __init__(self, letters):
        self.letters = letters

    def encode(self, text):
        out = []
        for ch in text:
            k = self.letters.find(ch)
            if k < 0:
                fatal(f"charset: no code for {ch!r}")
            out.append(k)
        return torch.tensor(out)


class Lines(Dataset):
    def __init__(self, root, charset):
        self.root, self.charset = root, charset
        with open(os.path.join(root, "truth.txt"), encoding="utf8") as f:
            self.truth = [line.rstrip("\n").split("|") for line in f]

    def __len__(self):
        return len(self.truth)

    def __getitem__(self, i):
        name, text = self.truth[i]
        with Image.open(os.path.join(self.root, name)) as im:
            x = np.asarray(im.convert("L"), dtype=np.float32) / 255
        return torch.from_numpy(1 - x), self.charset.encode(text)


def render(root, n, length=8):
    rng = np.random.default_rng(10)
    with open(os.path.join(root, "truth.txt"), "w", encoding="utf8") as f:
        for i in range(n):
            text = "".join(ALPHABET[k] for k in rng.integers(0, 27, length))
            if i == 287:
                text = text[:3] + "é" + text[4:]
            im = Image.new("L", (12 * length, 16), 255)
            d = ImageDraw.Draw(im)
            for k, ch in enumerate(text):
                d.text((12 * k + 2, 2), ch, fill=0)
            im.save(os.path.join(root, f"{i:04d}.png"))
            f.write(f"{i:04d}.png|{text}\n")


class Columns(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(16 * 12, 64), nn.ReLU(), nn.Linear(64, len(ALPHABET)))

    def forward(self, x):
        b = x.shape[0]
        return self.fc(x.reshape(b, 16, -1, 12).permute(0, 2, 1, 3).reshape(b, -1, 192))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--lines", type=int, default=400)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        render(root, a.lines)
        loader = DataLoader(Lines(root, Charset(ALPHABET)), batch_size=16, num_workers=a.workers)
        net = Columns()
        opt = torch.optim.Adam(net.parameters(), lr=3e-3)
        for k, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            if k % 4 == 0:
                print(f"{k}/{len(loader)} {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
