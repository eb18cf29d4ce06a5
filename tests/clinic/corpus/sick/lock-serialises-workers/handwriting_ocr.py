# cause: lock-serialises-workers
# also: not-fed-fast-enough
import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
import time

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

ALPHABET = "0123456789"


@contextlib.contextmanager
def exclusive(path):
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def fetch_line(root, name):
    """Page images live on the department's share, which has one mount for all."""
    with exclusive(os.path.join(root, ".mount")):
        with Image.open(os.path.join(root, name)) as im:
            im.load()
        time.sleep(0.007)
    return im


def binarise(im, threshold):
    a = np.asarray(im, dtype=np.float32) / 255
    return (a > threshold).astype(np.float32)


class Pipeline:
    def __init__(self, *stages):
        self.stages = stages

    def __call__(self, x):
        for s in self.stages:
            x = s(x)
        return x


class Lines(Dataset):
    def __init__(self, names, pipeline):
        self.names, self.pipeline = names, pipeline

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        name = self.names[i]
        return self.pipeline(name), torch.tensor([ALPHABET.index(c) for c in name.split("_")[1][:4]])


def draw(root, n):
    rng = np.random.default_rng(8)
    for i in range(n):
        text = "".join(rng.choice(list(ALPHABET), 4))
        im = Image.new("L", (48, 16), 0)
        ImageDraw.Draw(im).text((4, 2), text, fill=255)
        im.save(os.path.join(root, f"{i:04d}_{text}.png"))
    return sorted(f for f in os.listdir(root) if f.endswith(".png"))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(48 * 16, 128), nn.ReLU())
        self.heads = nn.Linear(128, 40)

    def forward(self, x):
        return self.heads(self.body(x.flatten(1))).view(-1, 4, 10)


def main():
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="ocr")
    try:
        names = draw(root, 420)
        steps = Pipeline(functools.partial(fetch_line, root), functools.partial(binarise, threshold=0.4), torch.from_numpy)
        loader = DataLoader(Lines(names, steps), batch_size=12, shuffle=True, num_workers=3, persistent_workers=True, drop_last=True)
        model = Reader()
        opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
        for epoch in range(2):
            began, right, total = time.time(), 0, 0
            for x, y in loader:
                out = model(x)
                loss = nn.functional.cross_entropy(out.flatten(0, 1), y.flatten())
                opt.zero_grad()
                loss.backward()
                opt.step()
                right += int((out.argmax(-1) == y).sum())
                total += y.numel()
            print("epoch %d characters right %.2f in %.1f s" % (epoch, right / total, time.time() - began), flush=True)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
