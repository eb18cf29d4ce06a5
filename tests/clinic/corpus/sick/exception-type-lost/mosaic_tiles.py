# cause: exception-type-lost
"""Cloud / no-cloud classifier over satellite tiles. Tiles the archive has not restored yet are skipped and counted."""
import argparse
import io
import logging
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("mosaic")


class TileOffline(Exception):
    def __init__(self, row, col, tier):
        super().__init__(f"tile r{row} c{col} is on {tier}")
        self.row, self.col, self.tier = row, col, tier


def build_archive(root: Path, side: int) -> None:
    rng = np.random.default_rng(17)
    for r in range(side):
        for c in range(side):
            label = (r * 7 + c * 3) % 2
            img = rng.normal(90 + 60 * label, 25, (48, 48, 3)).clip(0, 255).astype(np.uint8)
            buf = io.BytesIO()
            Image.fromarray(img).save(buf, "PNG", compress_level=1)
            (root / f"r{r:02d}_c{c:02d}.png").write_bytes(buf.getvalue())
    (root / "r09_c04.png").rename(root / "r09_c04.stub")


class Archive:
    def __init__(self, root: Path):
        self.root = root

    def open(self, row, col):
        path = self.root / f"r{row:02d}_c{col:02d}.png"
        if path.with_suffix(".stub").exists():
            raise TileOffline(row, col, "tape")
        time.sleep(0.003)
        return Image.open(io.BytesIO(path.read_bytes())).convert("RGB")


class Mosaic(Dataset):
    def __init__(self, archive: Archive, side: int, train=True):
        self.archive, self.side, self.train = archive, side, train

    def __len__(self):
        return self.side * self.side

    def __getitem__(self, i):
        row, col = divmod(i, self.side)
        img = self.archive.open(row, col).resize((64, 64), Image.BILINEAR)
        if self.train and torch.rand(()) < 0.5:
            img = img.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        x = torch.from_numpy(np.asarray(img, dtype=np.float32) / 255).permute(2, 0, 1).contiguous()
        return x, (row * 7 + col * 3) % 2


def batches(loader, counter):
    """Yields batches; a batch with an offline tile is left out."""
    it = iter(loader)
    while True:
        try:
            yield next(it)
        except StopIteration:
            return
        except TileOffline as e:
            counter["skipped"] += 1
            log.info("left out a batch: %s", e.args[0].splitlines()[-1])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--side", type=int, default=20)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="mosaic_") as tmp:
        build_archive(Path(tmp), args.side)
        ds = Mosaic(Archive(Path(tmp)), args.side)
        loader = DataLoader(ds, 10, shuffle=True, num_workers=args.workers, persistent_workers=args.workers > 0)
        net = nn.Sequential(nn.Conv2d(3, 24, 5, 2), nn.ReLU(), nn.Conv2d(24, 48, 3, 2), nn.ReLU(),
                            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 2))
        opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
        counter = {"skipped": 0}
        for epoch in range(args.epochs):
            losses = []
            for x, y in batches(loader, counter):
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
            log.info("epoch %d  loss %.4f  batches %d  left out %d", epoch, np.mean(losses), len(losses), counter["skipped"])


if __name__ == "__main__":
    main()
