# cause: result-not-picklable
"""Product detection on supermarket shelves, anchor-free head, everything driven by one dict."""
import copy
import math
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

BASE = dict(
    seed=4,
    data=dict(n_train=400, n_val=80, size=128, max_items=7),
    batch=dict(fields=("images", "heat", "sizes", "boxes", "shelf_ids"), stride=8, batch_size=16),
    loader=dict(num_workers=2, persistent_workers=True),
    optim=dict(lr=2e-3, epochs=4),
)


def merge(base, over):
    out = copy.deepcopy(base)
    for k, v in over.items():
        out[k] = merge(out[k], v) if isinstance(v, dict) else v
    return out


class ShelfScenes(Dataset):
    """Renders a shelf: rows of coloured packages."""

    def __init__(self, n, size, max_items, offset=0):
        self.n, self.size, self.max_items, self.offset = n, size, max_items, offset

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        rng = np.random.default_rng(self.offset + idx)
        img = rng.normal(0.4, 0.08, (3, self.size, self.size)).astype(np.float32)
        boxes = []
        for _ in range(rng.integers(1, self.max_items + 1)):
            w, h = rng.integers(14, 36, 2)
            x, y = rng.integers(0, self.size - 36, 2)
            img[:, y:y + h, x:x + w] = rng.random((3, 1, 1))
            boxes.append([x, y, x + w, y + h])
        return torch.from_numpy(img), torch.tensor(boxes, dtype=torch.float32), f"shelf-{self.offset + idx:05d}"


def make_collate(fields, stride, **_):
    ShelfBatch = namedtuple("ShelfBatch", fields)

    def collate(samples):
        imgs, boxes, ids = zip(*samples)
        images = torch.stack(imgs)
        g = images.shape[-1] // stride
        heat = torch.zeros(len(imgs), 1, g, g)
        sizes = torch.zeros(len(imgs), 2, g, g)
        ys, xs = torch.meshgrid(torch.arange(g), torch.arange(g), indexing="ij")
        for b, bx in enumerate(boxes):
            for x1, y1, x2, y2 in bx.tolist():
                cx, cy = (x1 + x2) / 2 / stride, (y1 + y2) / 2 / stride
                blob = torch.exp(-((xs - cx) ** 2 + (ys - cy) ** 2) / 2)
                heat[b, 0] = torch.maximum(heat[b, 0], blob)
                i, j = min(g - 1, int(cy)), min(g - 1, int(cx))
                sizes[b, :, i, j] = torch.tensor([x2 - x1, y2 - y1]) / stride
        packed = torch.cat([torch.cat([torch.full((len(x), 1), float(b)), x], 1) for b, x in enumerate(boxes)])
        values = dict(images=images, heat=heat, sizes=sizes, boxes=packed, shelf_ids=list(ids))
        return ShelfBatch(**{k: values[k] for k in fields})

    return collate


class CenterHead(nn.Module):
    def __init__(self, ch=24):
        super().__init__()
        self.stem = nn.Sequential(*[m for a, b in ((3, ch), (ch, ch * 2), (ch * 2, ch * 2))
                                    for m in (nn.Conv2d(a, b, 3, 2, 1), nn.GroupNorm(4, b), nn.SiLU())])
        self.heat = nn.Conv2d(ch * 2, 1, 1)
        self.size = nn.Conv2d(ch * 2, 2, 1)
        nn.init.constant_(self.heat.bias, -math.log(9))

    def forward(self, x):
        h = self.stem(x)
        return self.heat(h), F.softplus(self.size(h))


def detection_loss(pred, batch):
    heat, size = pred
    l_heat = F.binary_cross_entropy_with_logits(heat, batch.heat)
    where = batch.sizes > 0
    l_size = F.l1_loss(size[where], batch.sizes[where])
    return l_heat + 0.1 * l_size


def build(cfg):
    d, b = cfg["data"], cfg["batch"]
    collate = make_collate(**b)
    train = ShelfScenes(d["n_train"], d["size"], d["max_items"])
    val = ShelfScenes(d["n_val"], d["size"], d["max_items"], offset=50_000)
    mk = lambda ds, shuffle: DataLoader(ds, b["batch_size"], shuffle=shuffle, collate_fn=collate, **cfg["loader"])
    return mk(train, True), mk(val, False)


def train(cfg):
    torch.manual_seed(cfg["seed"])
    train_loader, val_loader = build(cfg)
    model = CenterHead()
    opt = torch.optim.AdamW(model.parameters(), cfg["optim"]["lr"])
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg["optim"]["lr"] * 3,
                                                total_steps=cfg["optim"]["epochs"] * len(train_loader))
    for epoch in range(cfg["optim"]["epochs"]):
        model.train()
        for it, batch in enumerate(train_loader):
            loss = detection_loss(model(batch.images), batch)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            if it % 5 == 0:
                print(f"e{epoch} i{it:03d} loss {loss.item():.4f} items {len(batch.boxes)}", flush=True)
        model.eval()
        with torch.no_grad():
            val = [detection_loss(model(b.images), b).item() for b in val_loader]
        print(f"e{epoch} val {sum(val) / len(val):.4f}", flush=True)


if __name__ == "__main__":
    train(merge(BASE, {"data": {"size": 128}}))
