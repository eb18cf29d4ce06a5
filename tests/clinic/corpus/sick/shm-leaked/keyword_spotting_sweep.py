# cause: shm-leaked
# limits: shm=64M
"""Keyword spotting: a short learning-rate sweep with a fixed budget of steps, then the final training with the best setting."""
import multiprocessing as mp
import time
from dataclasses import dataclass, replace

import numpy as np
import psutil
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.multiprocessing.set_sharing_strategy("file_system")

WORDS = ("yes", "no", "up", "down", "stop", "go")


@dataclass(frozen=True)
class Recipe:
    lr: float = 1e-3
    batch: int = 48
    clips: int = 6000
    workers: int = 2
    budget: int = 10


class SpokenWords(Dataset):
    """Formant-like synthetic words, returned as a mel-ish picture of 128 bands by 320 frames."""

    def __init__(self, clips, seed):
        self.clips, self.seed = clips, seed
        self.basis = np.random.default_rng(7).normal(size=(len(WORDS), 3, 2))

    def __len__(self):
        return self.clips

    def __getitem__(self, i):
        rng = np.random.default_rng([self.seed, i])
        word = i % len(WORDS)
        time_axis, bands = np.linspace(0, 1, 320, dtype=np.float32), np.linspace(0, 1, 128, dtype=np.float32)
        picture = rng.standard_normal((128, 320), dtype=np.float32) * 0.3
        for slope, offset in self.basis[word]:
            centre = 0.5 + 0.15 * offset + 0.2 * slope * (time_axis - 0.5) + rng.normal(0, 0.02)
            picture += np.exp(-((bands[:, None] - centre[None].astype(np.float32)) / 0.03) ** 2)
        return picture, word


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 16, 8, stride=4), nn.ReLU(), nn.Conv2d(16, 16, 5, padding=2), nn.ReLU())
        self.head = nn.Linear(16, len(WORDS))

    def forward(self, x):
        return self.head(self.conv(x[:, None]).mean((2, 3)))


def make_loader(recipe, seed):
    return DataLoader(SpokenWords(recipe.clips, seed), batch_size=recipe.batch, shuffle=True, num_workers=recipe.workers)


def fit(recipe, seed, report=None):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = Spotter()
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.lr)
    smooth = None
    for step, (x, y) in enumerate(make_loader(recipe, seed), 1):
        loss = nn.functional.cross_entropy(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        smooth = loss.item() if smooth is None else 0.9 * smooth + 0.1 * loss.item()
        if report is not None:
            report[:] = smooth, step
        elif step % 5 == 0:
            print(f"  step {step}: loss {smooth:.3f}", flush=True)
    return smooth


def stop(process):
    """A trial has had its steps: end it with everything that it started."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            pass
    process.join()


def short_trial(recipe, seed):
    report = mp.Array("d", [float("inf"), 0])
    trial = mp.Process(target=fit, args=(recipe, seed, report))
    trial.start()
    while trial.is_alive() and report[1] < recipe.budget:
        time.sleep(0.02)
    if trial.is_alive():
        stop(trial)
    return report[0]


def main():
    base, scores = Recipe(), {}
    for n, lr in enumerate((3e-4, 1e-3, 3e-3, 1e-2, 3e-2)):
        scores[lr] = short_trial(replace(base, lr=lr), seed=n)
        print(f"lr {lr:g}: loss {scores[lr]:.3f} after {base.budget} steps", flush=True)
    best = min(scores, key=scores.get)
    print(f"final training with lr {best:g}", flush=True)
    began = time.time()
    final = fit(replace(base, lr=best, clips=1440), seed=99)
    print(f"done: loss {final:.3f} ({time.time() - began:.1f} s)")


if __name__ == "__main__":
    main()
