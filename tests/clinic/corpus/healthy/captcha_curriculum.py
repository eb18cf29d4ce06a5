"""Glyph recogniser with a growing difficulty; workers live for the whole run."""
import argparse

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

GLYPHS = "ABCDEFGHJKLMNPRSTUVWXYZ"


class Glyphs(Dataset):
    def __init__(self, n, size=64):
        self.n, self.size = n, size
        self.knobs = torch.zeros(2).share_memory_()  # difficulty, epoch

    def set_epoch(self, epoch, difficulty):
        self.knobs.copy_(torch.tensor([float(difficulty), float(epoch)]))

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        difficulty, epoch = self.knobs.tolist()
        rng = np.random.default_rng((i, int(epoch)))
        k = int(rng.integers(len(GLYPHS)))
        img = Image.new("L", (4 * self.size, 4 * self.size), 230)
        d = ImageDraw.Draw(img)
        for _ in range(10 + int(20 * difficulty)):
            d.line([int(v) for v in rng.integers(0, 4 * self.size, 4)], fill=int(rng.integers(100, 200)), width=2)
        for dx in range(0, 4 * self.size, 32):
            for dy in range(0, 4 * self.size, 32):
                d.text((dx, dy), GLYPHS[k], fill=20)
        img = img.rotate(float(rng.uniform(-1, 1)) * (5 + 20 * difficulty), fillcolor=230, resample=Image.BICUBIC)
        img = img.filter(ImageFilter.GaussianBlur(1 + difficulty)).resize((self.size, self.size), Image.LANCZOS)
        return torch.from_numpy(np.asarray(img, dtype=np.float32) / 255)[None], k


class Schedule:
    def __init__(self, dataset, epochs):
        self.dataset, self.epochs = dataset, epochs

    def before_epoch(self, epoch):
        self.dataset.set_epoch(epoch, epoch / max(1, self.epochs - 1))


class Fitter:
    def __init__(self, model, hooks):
        self.model, self.hooks = model, hooks
        self.opt = torch.optim.Adam(model.parameters(), 1e-3)
        self.loss = nn.CrossEntropyLoss()

    def pass_over(self, loader, learn):
        tot = 0.0
        with torch.set_grad_enabled(learn):
            for x, y in loader:
                loss = self.loss(self.model(x), y)
                if learn:
                    self.opt.zero_grad()
                    loss.backward()
                    self.opt.step()
                tot += loss.item()
        return tot / len(loader)

    def fit(self, train, val, epochs):
        for e in range(epochs):
            for h in self.hooks:
                h.before_epoch(e)
            print(f"epoch {e} train {self.pass_over(train, True):.4f} val {self.pass_over(val, False):.4f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    glyphs = Glyphs(600)
    train, val = (DataLoader(s, batch_size=24, shuffle=k == 0, num_workers=a.workers, persistent_workers=True)
                  for k, s in enumerate(random_split(glyphs, [500, 100])))
    model = nn.Sequential(nn.Conv2d(1, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 96, 3, 2, 1), nn.ReLU(),
                          nn.Conv2d(96, 112, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
                          nn.Linear(112 * 16, len(GLYPHS)))
    Fitter(model, [Schedule(glyphs, a.epochs)]).fit(train, val, a.epochs)


if __name__ == "__main__":
    main()
