# cause: result-not-picklable
"""Page layout segmentation: fixed-size training crops, validation at the original page size."""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

LABELS = ["background", "text", "figure", "rule"]


@dataclass
class Settings:
    pages: int = 220
    val_pages: int = 40
    size: int = 96
    batch_size: int = 10
    num_workers: int = 2
    epochs: int = 5
    lr: float = 2e-3


def draw_page(seed):
    g = np.random.default_rng(seed)
    w, h = int(g.integers(120, 200)), int(g.integers(160, 260))
    page, mask = Image.new("L", (w, h), 245), Image.new("L", (w, h), 0)
    dp, dm = ImageDraw.Draw(page), ImageDraw.Draw(mask)
    y = 10
    while y < h - 30:
        kind = int(g.integers(1, 4))
        bh = {1: 8, 2: 30, 3: 2}[kind]
        box = (10, y, w - 10, y + bh)
        dp.rectangle(box, fill={1: 120, 2: 180, 3: 20}[kind])
        dm.rectangle(box, fill=kind)
        y += bh + int(g.integers(4, 12))
    return page, mask


class ToTensor:
    def __call__(self, page, mask):
        x = torch.from_numpy(np.array(page, dtype=np.float32) / 255)[None]
        return x, torch.from_numpy(np.array(mask, dtype=np.int64))


class RandomCropPair:
    def __init__(self, size):
        self.size = size

    def __call__(self, page, mask):
        x = np.random.randint(0, page.width - self.size)
        y = np.random.randint(0, page.height - self.size)
        box = (x, y, x + self.size, y + self.size)
        return page.crop(box), mask.crop(box)


class Letterbox:
    """Shrinks a page into a square and tells how to bring a prediction back."""

    def __init__(self, size):
        self.size = size

    def __call__(self, page):
        scale = self.size / max(page.size)
        nw, nh = max(round(page.width * scale), 1), max(round(page.height * scale), 1)
        canvas = Image.new("L", (self.size, self.size), 255)
        canvas.paste(page.resize((nw, nh), Image.BILINEAR), (0, 0))

        def restore(logits):
            inner = logits[None, :, :nh, :nw]
            return F.interpolate(inner, size=(page.height, page.width), mode="bilinear", align_corners=False)[0]

        return canvas, restore


class Pages(Dataset):
    def __init__(self, ids, cfg, train):
        self.pages = [draw_page(i) for i in ids]
        self.train = train
        self.crop, self.box, self.tensor = RandomCropPair(cfg.size), Letterbox(cfg.size), ToTensor()

    def __len__(self):
        return len(self.pages)

    def __getitem__(self, i):
        page, mask = self.pages[i]
        if self.train:
            x, y = self.tensor(*self.crop(page, mask))
            return {"image": x, "mask": y}
        canvas, restore = self.box(page)
        x, _ = self.tensor(canvas, mask)
        return {"image": x, "mask": torch.from_numpy(np.array(mask, dtype=np.int64)), "restore": restore, "page": i}


def collate_val(items):
    return {"image": torch.stack([it["image"] for it in items]), "mask": [it["mask"] for it in items],
            "restore": [it["restore"] for it in items], "page": [it["page"] for it in items]}


class LayoutNet(nn.Module):
    def __init__(self, w=48):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, w, 3, padding=1), nn.ReLU(), nn.Conv2d(w, w, 3, padding=2, dilation=2),
                                    nn.ReLU(), nn.Conv2d(w, len(LABELS), 1))

    def forward(self, x):
        return self.layers(x)


class IoU:
    def __init__(self):
        self.inter, self.union = np.zeros(len(LABELS)), np.zeros(len(LABELS))

    def update(self, pred, gold):
        for c in range(len(LABELS)):
            p, g = pred == c, gold == c
            self.inter[c] += (p & g).sum().item()
            self.union[c] += (p | g).sum().item()

    def mean(self):
        return float((self.inter / np.maximum(self.union, 1)).mean())


class Experiment:
    def __init__(self, cfg):
        self.cfg = cfg
        ids = list(range(cfg.pages))
        self.train_loader = DataLoader(Pages(ids[cfg.val_pages:], cfg, True), cfg.batch_size, shuffle=True,
                                       num_workers=cfg.num_workers, drop_last=True, persistent_workers=True)
        self.val_loader = DataLoader(Pages(ids[:cfg.val_pages], cfg, False), cfg.batch_size, collate_fn=collate_val,
                                     num_workers=cfg.num_workers, persistent_workers=True)
        self.net = LayoutNet()
        self.opt = torch.optim.Adam(self.net.parameters(), cfg.lr)

    def run(self):
        for epoch in range(self.cfg.epochs):
            t0 = time.time()
            for batch in self.train_loader:
                loss = F.cross_entropy(self.net(batch["image"]), batch["mask"])
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            print(f"epoch {epoch} train loss {loss.item():.3f} ({time.time() - t0:.1f}s)", flush=True)
            print(f"epoch {epoch} val mIoU {self.validate():.3f}", flush=True)

    @torch.no_grad()
    def validate(self):
        iou = IoU()
        for batch in self.val_loader:
            for logits, restore, gold in zip(self.net(batch["image"]), batch["restore"], batch["mask"]):
                iou.update(restore(logits).argmax(0), gold)
        return iou.mean()


if __name__ == "__main__":
    torch.manual_seed(0)
    Experiment(Settings()).run()
