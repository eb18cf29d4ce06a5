# cause: shm-exhausted
# also: prefetch-memory
# limits: shm=64M
"""Train a small encoder/decoder on dermatoscopy tiles."""
import argparse
import atexit
import logging
import pathlib
import shutil
import tempfile
import time

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

log = logging.getLogger("lesion")


def build_corpus(root: pathlib.Path, count: int, side: int) -> None:
    rng = np.random.default_rng(11)
    for k in range(count):
        base = rng.integers(120, 220, size=3)
        img = Image.new("RGB", (side, side), tuple(int(c) for c in base))
        mask = Image.new("L", (side, side), 0)
        cx, cy, r = rng.integers(side // 4, 3 * side // 4, 2).tolist() + [int(rng.integers(20, side // 5))]
        box = [cx - r, cy - r, cx + r, cy + r]
        ImageDraw.Draw(img).ellipse(box, fill=(80, 50, 40))
        ImageDraw.Draw(mask).ellipse(box, fill=1)
        img.save(root / f"{k:04d}.jpg", quality=85)
        mask.save(root / f"{k:04d}.png")


class LesionTiles(Dataset):
    def __init__(self, root: pathlib.Path, side: int):
        self.images = sorted(root.glob("*.jpg"))
        self.side = side

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        path = self.images[i]
        with Image.open(path) as im:
            x = np.asarray(im.convert("RGB").resize((self.side, self.side)), dtype=np.float32)
        with Image.open(path.with_suffix(".png")) as im:
            y = np.asarray(im.resize((self.side, self.side), Image.NEAREST), dtype=np.int64)
        x = (x / 255.0 - 0.5) / 0.25
        if torch.rand(()) < 0.5:
            x, y = x[:, ::-1].copy(), y[:, ::-1].copy()
        return torch.from_numpy(x).permute(2, 0, 1).contiguous(), torch.from_numpy(y)


class TinySeg(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4, padding=2), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())
        self.up = nn.Sequential(nn.Conv2d(16, 2, 1), nn.Upsample(scale_factor=4, mode="bilinear"))

    def forward(self, x):
        return self.up(self.down(x))


def run(args):
    root = pathlib.Path(tempfile.mkdtemp(prefix="lesion_"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    build_corpus(root, args.images, 320)
    full = LesionTiles(root, args.side)
    train, val = random_split(full, [0.85, 0.15], generator=torch.Generator().manual_seed(0))
    loader = DataLoader(train, batch_size=args.batch, shuffle=True, num_workers=args.workers, drop_last=True)
    val_loader = DataLoader(val, batch_size=2)
    model = TinySeg()
    optim = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_fn = nn.CrossEntropyLoss(weight=torch.tensor([0.4, 1.6]))
    for epoch in range(args.epochs):
        model.train()
        t0 = time.perf_counter()
        for step, (x, y) in enumerate(loader):
            loss = loss_fn(model(x), y)
            optim.zero_grad(set_to_none=True)
            loss.backward()
            optim.step()
            log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
        model.eval()
        with torch.no_grad():
            acc = np.mean([(model(x).argmax(1) == y).float().mean().item() for x, y in val_loader])
        log.info("epoch %d done in %.1fs, pixel accuracy %.3f", epoch, time.perf_counter() - t0, acc)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--images", type=int, default=90)
    p.add_argument("--side", type=int, default=448)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    run(p.parse_args())
