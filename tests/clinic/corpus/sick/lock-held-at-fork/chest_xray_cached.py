# cause: lock-held-at-fork
"""Chest film classifier. Films are big, so decoded thumbnails are kept and a thread fills the store ahead of us."""
import argparse
import io
import threading

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class FilmArchive:
    """Stands for the PACS export: PNG bytes by accession number."""

    def __init__(self, n, side=320):
        rng = np.random.default_rng(9)
        base = rng.integers(20, 90, (side, side), dtype=np.uint8)
        self.blobs, self.findings = [], []
        for i in range(n):
            film = np.roll(base, i * 7, axis=1).copy()
            finding = i % 2
            if finding:
                y, x = rng.integers(40, side - 100, 2)
                film[y:y + 60, x:x + 60] += 120
            buf = io.BytesIO()
            Image.fromarray(film).save(buf, "PNG", compress_level=1)
            self.blobs.append(buf.getvalue())
            self.findings.append(finding)


class ThumbnailStore:
    def __init__(self, archive, side):
        self.archive, self.side = archive, side
        self.lock = threading.Lock()
        self.thumbs = {}

    def _decode(self, i):
        film = Image.open(io.BytesIO(self.archive.blobs[i]))
        film = film.filter(ImageFilter.MedianFilter(3)).resize((self.side, self.side), Image.LANCZOS)
        return np.asarray(film, dtype=np.uint8)

    def get(self, i):
        with self.lock:                       # never decode one film twice
            if i not in self.thumbs:
                self.thumbs[i] = self._decode(i)
            return self.thumbs[i]

    def fill_in_background(self, ids):
        def run():
            for i in ids:
                self.get(i)
        t = threading.Thread(target=run, name="thumb-filler", daemon=True)
        t.start()
        return t


class ChestFilms(Dataset):
    def __init__(self, archive, side=112, jitter=0.1):
        self.archive = archive
        self.store = ThumbnailStore(archive, side)
        self.jitter = jitter

    def __len__(self):
        return len(self.archive.blobs)

    def __getitem__(self, i):
        x = torch.from_numpy(self.store.get(i).astype(np.float32) / 255)[None]
        x = x * (1 + self.jitter * (2 * torch.rand(()) - 1))
        return {"film": x, "finding": torch.tensor(float(self.archive.findings[i])), "accession": i}


def conv_block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU())


class FilmNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(conv_block(1, 12), conv_block(12, 24), conv_block(24, 48))
        self.head = nn.Linear(48, 1)

    def forward(self, x):
        return self.head(self.trunk(x).amax((2, 3))).squeeze(1)


def run_epoch(net, loader, opt=None):
    losses, right, n = [], 0, 0
    for batch in loader:
        logit = net(batch["film"])
        loss = nn.functional.binary_cross_entropy_with_logits(logit, batch["finding"])
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            opt.step()
        losses.append(loss.item())
        right += ((logit > 0) == (batch["finding"] > 0.5)).sum().item()
        n += len(logit)
    return np.mean(losses), right / n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--films", type=int, default=320)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=16)
    a = p.parse_args()
    torch.manual_seed(1)

    data = ChestFilms(FilmArchive(a.films))
    cut = int(a.films * 0.85)
    train, held_out = Subset(data, range(cut)), Subset(data, range(cut, a.films))
    data.store.fill_in_background(range(a.films))

    net = FilmNet()
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=1e-4)
    train_loader = DataLoader(train, a.batch_size, shuffle=True, num_workers=a.workers)
    test_loader = DataLoader(held_out, a.batch_size)
    for epoch in range(a.epochs):
        net.train()
        loss, acc = run_epoch(net, train_loader, opt)
        net.eval()
        with torch.no_grad():
            vloss, vacc = run_epoch(net, test_loader)
        print(f"{epoch}: train {loss:.3f}/{acc:.2f}  held out {vloss:.3f}/{vacc:.2f}", flush=True)


if __name__ == "__main__":
    main()
