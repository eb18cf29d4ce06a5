# cause: thread-pool-after-fork
"""Gleason-like grading of synthetic biopsy tiles. Each case has four stains that are decoded side by side."""
import io
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

STAINS = ("he", "p63", "erg", "ki67")
ROOT = tempfile.mkdtemp(prefix="biopsy-")
N_CASES, SIZE = 500, 64


def parallel(width):
    """Decorator: ``f(x)`` becomes ``f.over(xs)``, evaluated by up to ``width`` threads, in order."""
    def wrap(f):
        crew = ThreadPoolExecutor(max_workers=width, thread_name_prefix=f.__name__)
        f.over = lambda xs: [job.result() for job in [crew.submit(f, x) for x in xs]]
        return f
    return wrap


def paint(case, stain, rng, grade):
    yy, xx = np.mgrid[:SIZE, :SIZE]
    img = rng.normal(200, 8, (SIZE, SIZE, 3))
    for _ in range(4 + 5 * grade):
        cy, cx, r = rng.uniform(0, SIZE, 2).tolist() + [rng.uniform(2, 7 - grade)]
        img[(yy - cy) ** 2 + (xx - cx) ** 2 < r * r] -= (40 + 20 * stain, 60, 20)
    return Image.fromarray(img.clip(0, 255).astype(np.uint8))


def prepare():
    rng = np.random.default_rng(5)
    grades = rng.integers(0, 4, N_CASES)
    for case, grade in enumerate(grades):
        for s, name in enumerate(STAINS):
            paint(case, s, rng, grade).save(os.path.join(ROOT, f"{case:04d}_{name}.png"))
    return grades


@parallel(width=4)
def decode(path):
    with open(path, "rb") as f:
        raw = f.read()
    img = Image.open(io.BytesIO(raw)).convert("RGB")
    return np.asarray(img.filter(ImageFilter.MedianFilter(5)), dtype=np.float32) / 255


def paths_of(case):
    return [os.path.join(ROOT, f"{case:04d}_{name}.png") for name in STAINS]


def channel_statistics(cases):
    stack = np.stack([np.concatenate(decode.over(paths_of(c)), axis=-1) for c in cases])
    return stack.mean((0, 1, 2)), stack.std((0, 1, 2))


class CaseDataset(Dataset):
    def __init__(self, cases, grades, mean, std, augment):
        self.cases, self.grades = np.asarray(cases), grades
        self.mean, self.std = mean, std
        self.augment = augment

    def __len__(self):
        return len(self.cases)

    def __getitem__(self, i):
        case = int(self.cases[i])
        x = np.concatenate(decode.over(paths_of(case)), axis=-1)
        x = (x - self.mean) / self.std
        if self.augment:
            x = np.rot90(x, np.random.randint(4))
            if np.random.rand() < 0.5:
                x = x[:, ::-1]
        x = torch.from_numpy(np.ascontiguousarray(x.transpose(2, 0, 1), dtype=np.float32))
        return x, int(self.grades[case])


def loaders(grades, workers=2):
    order = np.random.default_rng(1).permutation(N_CASES)
    train_cases, val_cases = order[80:], order[:80]
    mean, std = channel_statistics(train_cases[:24])
    weight = 1.0 / np.bincount(grades[train_cases])[grades[train_cases]]
    train = DataLoader(CaseDataset(train_cases, grades, mean, std, True), batch_size=20,
                       sampler=WeightedRandomSampler(torch.from_numpy(weight), len(train_cases)),
                       num_workers=workers, persistent_workers=workers > 0)
    val = DataLoader(CaseDataset(val_cases, grades, mean, std, False), batch_size=40,
                     num_workers=workers, persistent_workers=workers > 0)
    return train, val


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(12, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.head = nn.Linear(512, 4)

    def forward(self, x):
        return self.head(self.body(x))


def run():
    torch.manual_seed(0)
    grades = prepare()
    train, val = loaders(grades)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)
    for epoch in range(4):
        net.train()
        t0, running = time.time(), 0.0
        for x, y in train:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
        net.eval()
        with torch.no_grad():
            right = sum((net(x).argmax(1) == y).sum().item() for x, y in val)
        print(f"[{epoch}] loss={running / len(train):.3f} val_acc={right / 80:.3f} t={time.time() - t0:.1f}", flush=True)
        torch.save(net.state_dict(), os.path.join(ROOT, "last.pt"))


run()
