# cause: lock-held-at-fork
"""Fine-grained herbarium classifier; label images are kept in a shared thumbnail store."""
import argparse
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class ThumbnailStore:
    """Decodes specimen sheets once and keeps the reduced version. Safe to use from several threads."""

    def __init__(self, sheets, side=32):
        self.sheets = sheets
        self.side = side
        self._guard = threading.RLock()
        self._thumbs = {}
        self.hits = 0

    def _reduce(self, sheet):
        k = sheet.shape[0] // self.side
        x = sheet[: k * self.side, : k * self.side].astype(np.float32)
        for _ in range(6):
            x = (x + np.roll(x, 1, 0) + np.roll(x, 1, 1) + np.roll(x, -1, 0)) / 4
        return x.reshape(self.side, k, self.side, k).mean((1, 3)) / 255.0

    def preload(self, keys):
        with self._guard:
            for key in keys:
                self._thumbs[key] = self._reduce(self.sheets[key])

    def __getitem__(self, key):
        with self._guard:
            if key in self._thumbs:
                self.hits += 1
            else:
                self._thumbs[key] = self._reduce(self.sheets[key])
            return self._thumbs[key]

    def start_preload(self, keys):
        t = threading.Thread(target=self.preload, args=(list(keys),), name="preload", daemon=True)
        t.start()
        return t


class Herbarium(Dataset):
    def __init__(self, store, labels, train=True):
        self.store, self.labels, self.train = store, labels, train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        thumb = torch.from_numpy(self.store[i].copy())[None]
        if self.train and torch.rand(()) < 0.5:
            thumb = thumb.flip(-1)
        return thumb, self.labels[i]


def make_sheets(n, side, rng):
    labels = rng.integers(0, 5, n)
    sheets = []
    for lab in labels:
        s = rng.integers(0, 90, (side, side), dtype=np.uint8)
        s[:: 3 + int(lab)] += 120
        sheets.append(s)
    return sheets, torch.from_numpy(labels)


def run_epoch(model, loader, opt=None):
    total, right, loss_sum = 0, 0, 0.0
    for x, y in loader:
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            opt.step()
        total += len(y)
        right += int((out.argmax(1) == y).sum())
        loss_sum += float(loss.detach()) * len(y)
    return loss_sum / total, right / total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sheets", type=int, default=240)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    rng = np.random.default_rng(11)
    torch.manual_seed(0)
    sheets, labels = make_sheets(args.sheets, 512, rng)
    store = ThumbnailStore(sheets)
    store.start_preload(range(0, args.sheets))          # gets the store ready while the model is being set up

    model = nn.Sequential(nn.Conv2d(1, 12, 3, stride=2), nn.ReLU(), nn.Conv2d(12, 24, 3, stride=2), nn.ReLU(),
                          nn.Flatten(), nn.LazyLinear(5))
    model(torch.zeros(1, 1, 32, 32))
    opt = torch.optim.AdamW(model.parameters(), 2e-3)
    full = Herbarium(store, labels)
    train, val = random_split(full, [args.sheets - 48, 48])
    train_loader = DataLoader(train, 16, shuffle=True, num_workers=args.workers, persistent_workers=True)
    val_loader = DataLoader(val, 24, num_workers=args.workers, persistent_workers=True)
    for epoch in range(args.epochs):
        t = time.perf_counter()
        tl, ta = run_epoch(model, train_loader, opt)
        with torch.no_grad():
            vl, va = run_epoch(model, val_loader)
        print(f"epoch {epoch}: train {tl:.3f}/{ta:.2f}  val {vl:.3f}/{va:.2f}  {time.perf_counter() - t:.1f}s", flush=True)


if __name__ == "__main__":
    main()
