# cause: shm-exhausted
# also: prefetch-memory
# limits: shm=64M
"""Binary screening of skin photographs: small crops for training, multi-crop voting for validation."""
import argparse
import io
import logging
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("screening")


def write_photos(root: Path, count: int, rng: np.random.Generator) -> list:
    rows = []
    yy, xx = np.mgrid[0:288, 0:288]
    for k in range(count):
        label = int(rng.integers(2))
        cx, cy = rng.uniform(110, 180, size=2)
        radius = rng.uniform(30, 60)
        wobble = 1 + label * 0.35 * np.sin(np.arctan2(yy - cy, xx - cx) * 5)
        spot = ((xx - cx) ** 2 + (yy - cy) ** 2) < (radius * wobble) ** 2
        skin = np.full((288, 288, 3), (214, 170, 145), dtype=np.float32) + rng.normal(0, 6, (288, 288, 3))
        skin[spot] = (92, 58, 40)
        buf = io.BytesIO()
        Image.fromarray(skin.clip(0, 255).astype(np.uint8)).save(buf, "JPEG", quality=88)
        name = f"patient_{k:04d}.jpg"
        (root / name).write_bytes(buf.getvalue())
        rows.append((name, label))
    return rows


class Photos(Dataset):
    def __init__(self, root, rows, view):
        self.root, self.rows, self.view = Path(root), rows, view

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, k):
        name, label = self.rows[k]
        with Image.open(self.root / name) as im:
            im = im.convert("RGB")
        return self.view(im), torch.tensor(float(label))


def to_tensor(im):
    return torch.from_numpy(np.asarray(im, dtype=np.float32) / 255.0).permute(2, 0, 1).contiguous()


class TrainView:
    def __init__(self, side):
        self.side = side

    def __call__(self, im):
        left, top = np.random.randint(0, 288 - 224, size=2)
        im = im.crop((left, top, left + 224, top + 224)).rotate(float(np.random.uniform(-20, 20)))
        im = ImageEnhance.Color(im).enhance(float(np.random.uniform(0.8, 1.2)))
        return to_tensor(im.resize((self.side, self.side), Image.BILINEAR))


class VotingView:
    """Corners, centre and their mirror images at two scales."""

    def __init__(self, side):
        self.side = side

    def __call__(self, im):
        views = []
        for scale in (224, 256):
            gap = 288 - scale
            for left, top in ((0, 0), (gap, 0), (0, gap), (gap, gap), (gap // 2, gap // 2)):
                patch = im.crop((left, top, left + scale, top + scale)).resize((self.side, self.side), Image.BILINEAR)
                views += [to_tensor(patch), to_tensor(patch.transpose(Image.FLIP_LEFT_RIGHT))]
        return torch.stack(views)


def build_model():
    return nn.Sequential(nn.Conv2d(3, 12, 5, stride=4), nn.ReLU(), nn.Conv2d(12, 24, 3, stride=2), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 1))


@torch.no_grad()
def vote(model, loader):
    model.eval()
    right = total = 0
    for views, y in loader:
        b, v = views.shape[:2]
        score = model(views.flatten(0, 1)).view(b, v).mean(1)
        right += ((score > 0) == (y > 0.5)).sum().item()
        total += b
    return right / total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--photos", type=int, default=288)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(3)
    root = Path(tempfile.mkdtemp(prefix="photos_"))
    try:
        rows = write_photos(root, args.photos, np.random.default_rng(3))
        cut = int(0.6 * len(rows))
        train = DataLoader(Photos(root, rows[:cut], TrainView(96)), batch_size=16, shuffle=True, num_workers=2,
                           persistent_workers=True)
        val = DataLoader(Photos(root, rows[cut:], VotingView(160)), batch_size=16, num_workers=2, persistent_workers=True)
        model = build_model()
        opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
        lossf = nn.BCEWithLogitsLoss()
        for epoch in range(args.epochs):
            model.train()
            for x, y in train:
                loss = lossf(model(x).squeeze(1), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            log.info("epoch %d loss %.3f accuracy %.3f", epoch, loss.item(), vote(model, val))
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
