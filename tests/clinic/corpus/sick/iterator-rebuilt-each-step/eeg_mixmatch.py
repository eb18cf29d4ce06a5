# cause: iterator-rebuilt-each-step
"""Semi-supervised sleep staging from EEG: a labelled pool plus consistency on unlabelled nights."""
import copy
import itertools

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler

FS, SECONDS, STAGES = 100, 20, 5


class Night(Dataset):
    def __init__(self, epochs, labelled, seed):
        self.seed, self.labelled = seed, labelled
        self.stage = np.random.default_rng(seed).integers(0, STAGES, epochs)

    def __len__(self):
        return len(self.stage)

    def _signal(self, i):
        rng = np.random.default_rng((self.seed, i))
        t = np.arange(FS * SECONDS) / FS
        f = 2.0 + 2.5 * self.stage[i]
        return np.sin(2 * np.pi * f * t + rng.uniform(0, 6)) + rng.normal(scale=1.0, size=t.size)

    def _spectrogram(self, x):
        frames = np.lib.stride_tricks.sliding_window_view(x, 200)[::50]
        return np.log1p(np.abs(np.fft.rfft(frames * np.hanning(200), axis=1))[:, :40])

    def __getitem__(self, i):
        x = self._signal(i)
        if self.labelled:
            return self._spectrogram(x).astype(np.float32), int(self.stage[i])
        jitter = [x * s + np.random.normal(scale=0.2, size=x.size) for s in (0.9, 1.1)]
        return tuple(self._spectrogram(j).astype(np.float32) for j in jitter)


class Stream:
    """Hands out one batch at a time, for ever."""

    def __init__(self, dataset, batch_size, workers):
        self.loader = DataLoader(dataset, batch_size, sampler=RandomSampler(dataset, replacement=True),
                                 num_workers=workers)

    def draw(self):
        for batch in self.loader:
            return batch


class Stager(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(40, 32, 5, stride=2), nn.ReLU(), nn.Conv1d(32, 32, 5, stride=2), nn.ReLU())
        self.head = nn.Linear(32, STAGES)

    def forward(self, s):
        return self.head(self.conv(s.transpose(1, 2)).mean(2))


class Trainer:
    def __init__(self, steps=70):
        self.steps = steps
        self.student = Stager()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.opt = torch.optim.Adam(self.student.parameters(), 1e-3)
        self.labelled = Stream(Night(400, True, 1), 8, workers=2)
        self.unlabelled = Stream(Night(4000, False, 2), 8, workers=2)

    def ema(self, m=0.98):
        for a, b in zip(self.teacher.parameters(), self.student.parameters()):
            a.mul_(m).add_(b.detach(), alpha=1 - m)

    def step(self):
        x, y = self.labelled.draw()
        weak, strong = self.unlabelled.draw()
        sup = F.cross_entropy(self.student(x), y)
        with torch.no_grad():
            p = self.teacher(weak).softmax(1)
        keep = (p.max(1).values > 0.5).float()
        cons = (F.cross_entropy(self.student(strong), p.argmax(1), reduction="none") * keep).mean()
        loss = sup + 0.5 * cons
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.ema()
        return sup.item(), cons.item(), keep.mean().item()

    def fit(self):
        for k in itertools.count(1):
            sup, cons, used = self.step()
            if k % 10 == 0:
                print(f"{k:4d} sup {sup:.3f} cons {cons:.3f} used {used:.2f}", flush=True)
            if k == self.steps:
                break


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    Trainer().fit()
