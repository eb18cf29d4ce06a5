"""Bread surface defects; broken photographs are dropped from their batch by the collate function."""
import argparse
import io

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, UnidentifiedImageError
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data import default_collate


def photograph(n, seed=0):
    rng = np.random.default_rng(seed)
    out = []
    for i in range(n):
        img = Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8))
        buf = io.BytesIO()
        img.save(buf, "JPEG", quality=70)
        blob = buf.getvalue()
        if i % 90 == 17:
            blob = blob[:11] + bytes(40)
        out.append((blob, i % 3))
    return out


class BreadPhotos(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def decode(self, blob):
        try:
            with Image.open(io.BytesIO(blob)) as im:
                return np.asarray(im.convert("RGB"), dtype=np.float32)
        except (UnidentifiedImageError, OSError, SyntaxError):
            return None

    def __getitem__(self, i):
        blob, label = self.items[i]
        arr = self.decode(blob)
        if arr is None:
            return None
        return torch.from_numpy(arr.transpose(2, 0, 1) / 255.0), label


def keep_good(samples):
    good = [s for s in samples if s is not None]
    return default_collate(good) if good else None


class Oven(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(3, 64, 3, padding=1)
        self.c2 = nn.Conv2d(64, 96, 3, padding=1)
        self.c3 = nn.Conv2d(96, 96, 3, padding=1, stride=2)
        self.fc = nn.Linear(96, 3)

    def forward(self, x):
        x = F.relu(self.c3(F.relu(self.c2(F.relu(self.c1(x))))))
        return self.fc(x.mean((2, 3)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = DataLoader(BreadPhotos(photograph(540)), 30, shuffle=True, num_workers=1, collate_fn=keep_good, persistent_workers=True)
    val = DataLoader(BreadPhotos(photograph(120, 5)), 30, num_workers=1, collate_fn=keep_good, persistent_workers=True)
    model = Oven()
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(a.epochs):
        model.train()
        used = 0
        for batch in train:
            if batch is None:
                continue
            x, y = batch
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            used += len(y)
        model.eval()
        hits = seen = 0
        with torch.no_grad():
            for batch in val:
                if batch is None:
                    continue
                x, y = batch
                hits += (model(x).argmax(1) == y).sum().item()
                seen += len(y)
        print(f"epoch {epoch}: loss {loss.item():.3f} used {used} acc {hits / seen:.2f}", flush=True)


if __name__ == "__main__":
    main()
