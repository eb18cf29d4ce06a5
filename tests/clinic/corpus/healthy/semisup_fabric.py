"""Fabric defects, semi-supervised: the unlabelled stream runs endlessly beside the labelled epochs."""
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Weave(Dataset):
    """Procedural fabric: any index gives a swatch, the length only sets the epoch."""

    def __init__(self, per_epoch, seed, views):
        self.per_epoch, self.seed, self.views = per_epoch, seed, views

    def __len__(self):
        return self.per_epoch

    def swatch(self, i):
        rng = np.random.default_rng((self.seed, i))
        y, x = np.mgrid[0:160, 0:160].astype(np.float32)
        img = 128 + 50 * np.sin(x * rng.uniform(0.3, 0.9)) * np.sin(y * rng.uniform(0.3, 0.9))
        defect = int(rng.integers(0, 3))
        if defect:
            a, b = rng.integers(20, 120, 2)
            img[a:a + 6 * defect, b:b + 24] = 240
        return Image.fromarray(np.clip(img, 0, 255).astype(np.uint8)), defect

    def view(self, img):
        img = img.rotate(float(torch.empty(()).uniform_(-20, 20)), resample=Image.BICUBIC)
        arr = np.asarray(img.resize((56, 56), Image.LANCZOS), dtype=np.float32) / 255
        return torch.from_numpy(arr)[None] + 0.03 * torch.randn(1, 56, 56)

    def __getitem__(self, i):
        img, defect = self.swatch(i)
        if self.views == 1:
            return self.view(img), defect
        return tuple(self.view(img) for _ in range(self.views))


def endless(loader):
    while True:
        yield from loader


class DefectNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 96, 3, 2, 1), nn.ReLU(),
                               nn.Conv2d(96, 128, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.out = nn.Linear(128, 3)

    def forward(self, x):
        return self.out(self.f(x))


class FixMatch:
    def __init__(self, model, labelled, unlabelled):
        self.model = model
        self.labelled, self.stream = labelled, endless(unlabelled)
        self.opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)

    def draw(self):
        return next(self.stream)

    def unsupervised(self):
        weak, strong = self.draw()
        with torch.no_grad():
            conf, guess = self.model(weak).softmax(1).max(1)
        loss = F.cross_entropy(self.model(strong), guess, reduction="none")
        return (loss * (conf > 0.8)).mean()

    def epoch(self):
        tot = 0.0
        for x, y in self.labelled:
            loss = F.cross_entropy(self.model(x), y) + 0.5 * self.unsupervised()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            tot += loss.item()
        return tot / len(self.labelled)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    labelled = DataLoader(Weave(320, 1, 1), 16, shuffle=True, num_workers=1, persistent_workers=True)
    unlabelled = DataLoader(Weave(512, 2, 2), 16, shuffle=True, num_workers=1, persistent_workers=True)
    val = DataLoader(Weave(96, 3, 1), 24, num_workers=2, persistent_workers=True)
    model = DefectNet()
    run = FixMatch(model, labelled, unlabelled)
    for e in range(4):
        loss = run.epoch()
        with torch.no_grad():
            acc = torch.cat([(model(x).argmax(1) == y).float() for x, y in val]).mean().item()
        print(f"epoch {e} loss {loss:.4f} acc {acc:.3f}", flush=True)


if __name__ == "__main__":
    main()
