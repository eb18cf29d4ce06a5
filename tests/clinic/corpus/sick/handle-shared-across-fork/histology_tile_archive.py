# cause: handle-shared-across-fork, stale-dataset-in-workers
"""Tile classification from a slide archive with a resolution curriculum."""
import io
import random
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = ("tumour", "stroma", "necrosis", "fat")


def write_archive(path, n=900, side=72):
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for i in range(n):
            label = i % len(CLASSES)
            tile = rng.integers(0, 90, size=(side, side, 3), dtype=np.uint8)
            tile[..., label % 3] += 80 + 15 * label
            buf = io.BytesIO()
            Image.fromarray(tile).save(buf, format="PNG", compress_level=1)
            z.writestr(f"{CLASSES[label]}/slide{i % 17:02d}_{i:05d}.png", buf.getvalue())


class Curriculum:
    """Starts from coarse crops and goes towards the full field of view."""

    def __init__(self, start, end, over):
        self.start, self.end, self.over = start, end, over

    def scale(self, epoch):
        k = min(epoch / self.over, 1.0)
        return self.start + (self.end - self.start) * k


class TileArchive(Dataset):
    def __init__(self, path, split, curriculum=None, out=48):
        self.archive = zipfile.ZipFile(path)
        names = sorted(n for n in self.archive.namelist() if n.endswith(".png"))
        held_out = {f"slide{k:02d}" for k in (3, 11)}
        self.names = [n for n in names if (Path(n).name[:7] in held_out) == (split == "val")]
        self.curriculum = curriculum
        self.out = out
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.names)

    def _view(self, img, i):
        if self.curriculum is None:
            return img.resize((self.out, self.out))
        r = random.Random(f"{self.epoch}-{i}")
        side = max(int(img.width * self.curriculum.scale(self.epoch)), 8)
        x, y = r.randint(0, img.width - side), r.randint(0, img.height - side)
        img = img.crop((x, y, x + side, y + side)).resize((self.out, self.out))
        if r.random() < 0.5:
            img = img.transpose(Image.FLIP_LEFT_RIGHT)
        return img.rotate(90 * r.randrange(4))

    def __getitem__(self, i):
        name = self.names[i]
        with self.archive.open(name) as f:
            img = Image.open(io.BytesIO(f.read())).convert("RGB")
        x = torch.from_numpy(np.asarray(self._view(img, i)).copy()).permute(2, 0, 1).float() / 255
        return x, CLASSES.index(name.split("/")[0])


class Stem(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(c_in, c_out, 3, 2, 1), nn.BatchNorm2d(c_out), nn.ReLU())

    def forward(self, x):
        return self.net(x)


class Trainer:
    def __init__(self, archive, epochs=6, batch_size=16, num_workers=2):
        self.epochs = epochs
        self.train_set = TileArchive(archive, "train", Curriculum(0.4, 1.0, over=epochs - 1))
        self.val_set = TileArchive(archive, "val")
        kw = dict(batch_size=batch_size, num_workers=num_workers, persistent_workers=True)
        self.train_loader = DataLoader(self.train_set, shuffle=True, drop_last=True, **kw)
        self.val_loader = DataLoader(self.val_set, **kw)
        self.model = nn.Sequential(Stem(3, 24), Stem(24, 48), Stem(48, 96), nn.AdaptiveAvgPool2d(1),
                                   nn.Flatten(), nn.Linear(96, len(CLASSES)))
        self.opt = torch.optim.AdamW(self.model.parameters(), 2e-3)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, epochs)
        self.loss = nn.CrossEntropyLoss(label_smoothing=0.05)

    def _train_epoch(self):
        self.model.train()
        total = 0.0
        for x, y in self.train_loader:
            loss = self.loss(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
        return total / len(self.train_loader)

    @torch.no_grad()
    def _validate(self):
        self.model.eval()
        hit = sum((self.model(x).argmax(1) == y).sum().item() for x, y in self.val_loader)
        return hit / len(self.val_set)

    def fit(self, out_dir):
        best = 0.0
        for epoch in range(self.epochs):
            self.train_set.set_epoch(epoch)
            t0 = time.time()
            loss, acc = self._train_epoch(), self._validate()
            self.sched.step()
            if acc >= best:
                best = acc
                torch.save(self.model.state_dict(), out_dir / "best.pt")
            print(f"epoch {epoch} scale {self.train_set.curriculum.scale(epoch):.2f} "
                  f"loss {loss:.4f} acc {acc:.3f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        write_archive(tmp / "tiles.zip")
        Trainer(tmp / "tiles.zip").fit(tmp)
