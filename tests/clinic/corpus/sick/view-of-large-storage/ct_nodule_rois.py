# cause: view-of-large-storage
"""Lung nodule malignancy from CT. Every annotation gives a box of its own size, so batches are lists."""
import argparse
import json
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def fake_lidc(root, n_series, shape, boxes_per_series):
    rng = np.random.default_rng(1186)
    background = rng.normal(-700, 80, size=shape).astype(np.float32)
    annotations = []
    for k in range(n_series):
        uid = f"1.3.6.1.4.1.{14519 + k}"
        vol = np.roll(background, 3 * k, axis=0)
        for _ in range(boxes_per_series):
            size = rng.integers(16, 33, size=3)
            lo = [int(rng.integers(0, s - n)) for s, n in zip(shape, size)]
            malignant = int(rng.random() < 0.4)
            z, y, x = (l + n // 2 for l, n in zip(lo, size))
            vol[z - 3:z + 3, y - 3:y + 3, x - 3:x + 3] = 200 if malignant else -100
            annotations.append({"uid": uid, "lo": lo, "size": size.tolist(), "malignant": malignant})
        np.save(os.path.join(root, uid + ".npy"), vol)
    with open(os.path.join(root, "annotations.json"), "w") as f:
        json.dump(annotations, f)


class Window:
    """Hounsfield window; works on the crop only."""

    def __init__(self, centre, width):
        self.centre, self.width = centre, width

    def __call__(self, hu):
        return ((hu - self.centre) / self.width + 0.5).clamp_(0, 1)


class NoduleRois(Dataset):
    def __init__(self, root, annotations):
        self.root = root
        self.ann = annotations

    def __len__(self):
        return len(self.ann)

    def _series(self, uid):
        return torch.from_numpy(np.load(os.path.join(self.root, uid + ".npy"), mmap_mode="c"))

    def __getitem__(self, i):
        a = self.ann[i]
        volume = self._series(a["uid"])
        roi = volume
        for dim, (start, n) in enumerate(zip(a["lo"], a["size"])):
            roi = roi.narrow(dim, start, n)
        return {"roi": roi, "malignant": a["malignant"], "uid": a["uid"]}


def collate_rois(items):
    return {"rois": [it["roi"] for it in items],
            "malignant": torch.tensor([float(it["malignant"]) for it in items]),
            "uids": [it["uid"] for it in items]}


class NoduleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.window = Window(-300.0, 1400.0)
        self.features = nn.Sequential(nn.Conv3d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv3d(8, 16, 3, stride=2), nn.ReLU(),
                                      nn.AdaptiveMaxPool3d(1), nn.Flatten())
        self.head = nn.Linear(16, 1)

    def forward(self, rois):
        feats = [self.features(self.window(r)[None, None]) for r in rois]
        return self.head(torch.cat(feats)).squeeze(1)


class Meter:
    def __init__(self):
        self.total = self.n = 0

    def add(self, value, n):
        self.total += value * n
        self.n += n

    @property
    def mean(self):
        return self.total / max(self.n, 1)


def train_one_epoch(net, loader, opt, epoch, log_every=5):
    net.train()
    loss_m, t0 = Meter(), time.time()
    for step, batch in enumerate(loader):
        loss = nn.functional.binary_cross_entropy_with_logits(net(batch["rois"]), batch["malignant"])
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss_m.add(loss.item(), len(batch["rois"]))
        if step % log_every == 0:
            print(f"epoch {epoch} step {step} loss {loss_m.mean:.4f} {loss_m.n / (time.time() - t0):.1f} rois/s", flush=True)
    print(f"epoch {epoch} took {time.time() - t0:.1f}s", flush=True)


@torch.no_grad()
def validate(net, loader):
    net.eval()
    acc = Meter()
    for batch in loader:
        hit = (net(batch["rois"]) > 0).float() == batch["malignant"]
        acc.add(hit.float().mean().item(), len(hit))
    return acc.mean


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--series", type=int, default=8)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--workers", type=int, default=1)
    ap.add_argument("--epochs", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        fake_lidc(root, args.series, (64, 256, 256), 50)
        with open(os.path.join(root, "annotations.json")) as f:
            ann = json.load(f)
        held_out = {a["uid"] for a in ann[-50:]}
        train = NoduleRois(root, [a for a in ann if a["uid"] not in held_out])
        valid = NoduleRois(root, [a for a in ann if a["uid"] in held_out])
        kw = dict(batch_size=args.batch, num_workers=args.workers, collate_fn=collate_rois, persistent_workers=True)
        train_loader, valid_loader = DataLoader(train, shuffle=True, **kw), DataLoader(valid, **kw)
        net = NoduleNet()
        opt = torch.optim.Adam(net.parameters(), lr=2e-3)
        for epoch in range(args.epochs):
            train_one_epoch(net, train_loader, opt, epoch)
            print(f"epoch {epoch} accuracy {validate(net, valid_loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
