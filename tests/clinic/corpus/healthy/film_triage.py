"""Chest film triage: many short epochs, separate validation without workers."""
import os
import shutil
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


@dataclass
class Options:
    films: int = 252
    side: int = 128
    crop: int = 64
    batch: int = 8
    epochs: int = 6
    workers: int = 2


def write(folder, o):
    rng = np.random.default_rng(1)
    for i in range(o.films):
        a = rng.integers(0, 90, (o.side, o.side), dtype=np.uint8)
        if i % 2:
            a[40:90, 40:90] += 80
        Image.fromarray(a).save(os.path.join(folder, f"{i:03d}.png"))


class Films(Dataset):
    def __init__(self, folder, crop):
        self.files = [os.path.join(folder, n) for n in sorted(os.listdir(folder))]
        self.crop = crop

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with Image.open(self.files[i]) as im:
            a = np.asarray(im.resize((self.crop, self.crop), Image.BILINEAR), dtype=np.float32) / 255
        time.sleep(0.002)                     # picture archive
        if torch.rand(()) < 0.5:
            a = a[:, ::-1].copy()
        return torch.from_numpy(a)[None], i % 2


class Triage(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
                                 nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 2))

    def forward(self, x):
        return self.net(x)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    hits = sum(int((model(x).argmax(1) == y).sum()) for x, y in loader)
    model.train()
    return hits / len(loader.dataset)


def main():
    o = Options()
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    try:
        write(folder, o)
        data = Films(folder, o.crop)
        train = DataLoader(Subset(data, range(240)), o.batch, shuffle=True, num_workers=o.workers, persistent_workers=True)
        valid = DataLoader(Subset(data, range(240, o.films)), o.batch)
        model = Triage()
        opt = torch.optim.Adam(model.parameters(), lr=2e-3)
        for epoch in range(o.epochs):
            for x, y in train:
                loss = nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            if epoch % 2 == 1:
                print("epoch %d loss %.3f valid %.2f" % (epoch, loss.item(), validate(model, valid)), flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
