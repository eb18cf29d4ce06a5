"""Mushroom classifier; one lighting model in the module serves every transform."""
import argparse
import copy
import io

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class Lighting:
    def __init__(self, seed):
        self.reseed(seed)

    def reseed(self, seed):
        self.rng = np.random.default_rng(seed)

    def tint(self):
        return self.rng.normal(1.0, 0.15, 3).astype(np.float32)

    def angle(self):
        return float(self.rng.uniform(-30, 30))


LIGHT = Lighting(42)


def start_worker(worker_id):
    LIGHT.reseed(torch.initial_seed())


class Rotate:
    def __call__(self, img):
        return img.rotate(LIGHT.angle(), resample=Image.BILINEAR)


class ToArray:
    def __init__(self, size):
        self.size = size

    def __call__(self, img):
        return np.asarray(img.resize((self.size, self.size), Image.BILINEAR), dtype=np.float32) / 255


class Tint:
    def __call__(self, arr):
        return np.clip(arr * LIGHT.tint(), 0, 1)


class Mushrooms(Dataset):
    def __init__(self, n, steps, seed=0):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, 4, n)
        self.jpegs = []
        for y in self.y:
            a = rng.integers(0, 90, (96, 96, 3)) + np.array([30 * y, 80, 20])
            buf = io.BytesIO()
            Image.fromarray(np.clip(a, 0, 255).astype(np.uint8)).resize((288, 288)).save(buf, "JPEG", quality=92)
            self.jpegs.append(buf.getvalue())
        self.steps = steps

    def __len__(self):
        return len(self.jpegs)

    def __getitem__(self, i):
        x = Image.open(io.BytesIO(self.jpegs[i])).convert("RGB")
        for s in self.steps:
            x = s(x)
        return torch.from_numpy(np.ascontiguousarray(x.transpose(2, 0, 1))), int(self.y[i])


def loaders(batch, workers, n=480):
    cut = n * 4 // 5
    photos = Mushrooms(n, [Rotate(), ToArray(64), Tint()])
    plain = copy.copy(photos)
    plain.steps = [ToArray(64)]
    fit, val = Subset(photos, range(cut)), Subset(plain, range(cut, n))
    return [DataLoader(d, batch, shuffle=d is fit, num_workers=workers, worker_init_fn=start_worker,
                       persistent_workers=True) for d in (fit, val)]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train, val = loaders(24, 2)
    model = nn.Sequential(nn.Conv2d(3, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 96, 3, 2, 1), nn.ReLU(),
                          nn.Conv2d(96, 96, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 4))
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    for epoch in range(a.epochs):
        tot = 0.0
        for x, y in train:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item()
        with torch.no_grad():
            acc = torch.cat([(model(x).argmax(1) == y).float() for x, y in val]).mean().item()
        print(f"epoch {epoch} loss {tot / len(train):.4f} acc {acc:.3f}", flush=True)


if __name__ == "__main__":
    main()
