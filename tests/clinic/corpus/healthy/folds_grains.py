"""Sand grain classification, cross-validated. Every fold goes over its grains once."""
import argparse
import gc
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

GRAINS = ("quartz", "olivine", "coral", "glass")


def draw(folder: Path, count: int):
    rng = np.random.default_rng(15)
    for k in range(count):
        kind = int(rng.integers(len(GRAINS)))
        y, x = np.mgrid[:56, :56]
        weave = np.sin(x * (0.3 + 0.2 * kind)) + np.cos(y * (0.5 + 0.1 * kind)) + rng.normal(0, 0.5, (56, 56))
        Image.fromarray(((weave - weave.min()) / np.ptp(weave) * 255).astype(np.uint8)).save(folder / f"{k:04d}_{GRAINS[kind]}.png")


class Micrographs(Dataset):
    def __init__(self, folder: Path):
        self.paths = sorted(folder.glob("*.png"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        img = Image.open(self.paths[i]).filter(ImageFilter.GaussianBlur(1)).rotate(90 * int(torch.randint(4, ())))
        time.sleep(0.002)
        x = torch.from_numpy(np.asarray(img, np.float32) / 255).unsqueeze(0)
        return x, GRAINS.index(self.paths[i].stem.split("_")[1])


def settle(worker_id):
    """What is there by now stays: keep the collector from walking over it, which would touch every page."""
    gc.collect()
    gc.freeze()


class Hook:
    def __init__(self, run):
        self.run = run

    def after_step(self, loss):
        pass


class Smooth(Hook):
    value = None

    def after_step(self, loss):
        self.value = loss if self.value is None else 0.95 * self.value + 0.05 * loss


class History(Hook):
    def __init__(self, run):
        super().__init__(run)
        self.rows = defaultdict(list)

    def after_step(self, loss):
        self.rows[self.run.fold].append(loss)


class Run:
    """One fold: model, optimiser, batches and hooks."""

    def __init__(self, fold, train, workers):
        self.fold, self.step = fold, 0
        self.model = nn.Sequential(nn.Conv2d(1, 32, 5, 2), nn.ReLU(), nn.Conv2d(32, 24, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(216, 4))
        self.opt = torch.optim.Adam(self.model.parameters(), 2e-3)
        self.loader = DataLoader(train, 10, shuffle=True, num_workers=workers, worker_init_fn=settle)
        self.hooks = {h.__name__: h(self) for h in (Smooth, History)}

    def fit(self):
        for x, y in self.loader:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.step += 1
            for h in self.hooks.values():
                h.after_step(loss.item())
        return self.hooks["Smooth"].value


def score(model, data):
    with torch.no_grad():
        return np.mean([(model(x).argmax(1) == y).float().mean().item() for x, y in DataLoader(data, 20)])


def cross(fold, train, test, args):
    run = Run(fold, train, args.workers)
    return run.fit(), score(run.model, test)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--folds", type=int, default=3)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        draw(Path(tmp), 280)
        data = Micrographs(Path(tmp))
        for fold in range(args.folds):
            test = Subset(data, range(fold, len(data), args.folds * 2))
            train = Subset(data, [i for i in range(len(data)) if i % (args.folds * 2) != fold])
            loss, accuracy = cross(fold, train, test, args)
            print(f"fold {fold}: loss {loss:.4f} accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
