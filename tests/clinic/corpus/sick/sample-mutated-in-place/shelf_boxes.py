# cause: sample-mutated-in-place
# also: wrong-length
"""Objectness and box regression for products on a shelf."""
import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

INPUT = 96


def photograph(root: Path, scenes: int):
    rng = np.random.default_rng(31)
    records = []
    for k in range(scenes):
        w, h = int(rng.integers(150, 260)), int(rng.integers(150, 260))
        img = Image.fromarray(rng.integers(0, 60, (h, w, 3), dtype=np.uint8))
        draw = ImageDraw.Draw(img)
        boxes = []
        for _ in range(3):
            x, y = rng.uniform(0, w - 60), rng.uniform(0, h - 60)
            bw, bh = rng.uniform(20, 55, 2)
            draw.rectangle([x, y, x + bw, y + bh], fill=tuple(int(c) for c in rng.integers(120, 255, 3)))
            boxes.append([x, y, x + bw, y + bh])
        name = f"shelf_{k:04d}.jpg"
        img.save(root / name, quality=85)
        records.append({"file": name, "boxes": boxes})
    (root / "annotations.json").write_text(json.dumps({"count": scenes // 4 * 3, "records": records}))


class Resize:
    def __init__(self, side):
        self.side = side

    def __call__(self, item):
        img, boxes = item["image"], item["boxes"]
        sx, sy = self.side / img.width, self.side / img.height
        boxes[:, 0::2] *= sx
        boxes[:, 1::2] *= sy
        item["image"] = img.resize((self.side, self.side), Image.BILINEAR)
        return item


class ToArrays:
    def __call__(self, item):
        img = np.asarray(item["image"], np.float32) / 255
        return {"image": torch.from_numpy(img).permute(2, 0, 1).contiguous(), "boxes": torch.from_numpy(item["boxes"].copy())}


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, item):
        for s in self.steps:
            item = s(item)
        return item


class Shelves(Dataset):
    def __init__(self, root: Path, transform):
        self.root = root
        index = json.loads((root / "annotations.json").read_text())
        self.count = index["count"]
        self.records = [{"file": r["file"], "boxes": np.array(r["boxes"], np.float32)} for r in index["records"]]
        self.transform = transform

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        item = dict(self.records[i])
        item["image"] = Image.open(self.root / item.pop("file")).convert("RGB")
        time.sleep(0.002)
        return self.transform(item)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 16, 5, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 32, 3, 2), nn.ReLU())
        self.box = nn.LazyLinear(12)

    def forward(self, x):
        return self.box(self.trunk(x).flatten(1)).view(-1, 3, 4)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=15)
    ap.add_argument("--accumulate", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp(prefix="shelf_"))
    try:
        photograph(root, 320)
        loader = DataLoader(Shelves(root, Compose(Resize(INPUT), ToArrays())), args.batch, shuffle=True, num_workers=2, persistent_workers=True)
        model = Detector()
        model(torch.zeros(1, 3, INPUT, INPUT))
        opt = torch.optim.AdamW(model.parameters(), 1e-3)
        for epoch in range(args.epochs):
            total = 0.0
            for step, b in enumerate(loader, 1):
                loss = nn.functional.smooth_l1_loss(model(b["image"]), b["boxes"] / INPUT)
                (loss / args.accumulate).backward()
                if step % args.accumulate == 0:
                    opt.step()
                    opt.zero_grad()
                total += loss.item()
            print(f"epoch {epoch} box loss {total / len(loader):.4f}", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
