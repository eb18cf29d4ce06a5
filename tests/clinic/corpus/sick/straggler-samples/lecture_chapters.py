# cause: straggler-samples
"""Chapter detection in lecture recordings."""
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass(frozen=True)
class Lecture:
    key: int
    minutes: int

    @property
    def transfer(self):
        return self.minutes * 0.0007


class Library:
    """Talks to the media host."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        minutes = rng.integers(8, 20, count)
        minutes[7::20] = rng.integers(1150, 1300, len(minutes[7::20]))
        self.lectures = [Lecture(k, int(m)) for k, m in enumerate(minutes)]

    def envelope(self, lecture):
        time.sleep(lecture.transfer)
        rng = np.random.default_rng(lecture.key)
        signal = rng.random(lecture.minutes * 6).astype(np.float32)
        if lecture.key % 3 == 0:
            signal[::9] *= 0.1
        return signal


class Chapters(Dataset):
    def __init__(self, library, width=48):
        self.library, self.width = library, width

    def __len__(self):
        return len(self.library.lectures)

    def __getitem__(self, i):
        lecture = self.library.lectures[i]
        signal = self.library.envelope(lecture)
        pieces = np.array_split(signal, self.width)
        feature = np.array([[p.mean(), p.min()] for p in pieces], dtype=np.float32)
        return torch.from_numpy(feature.T.copy()), float(lecture.key % 3 == 0)


class Boundary(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(2, 16, 5), nn.GELU(), nn.Conv1d(16, 16, 5), nn.GELU(), nn.AdaptiveAvgPool1d(1),
                                 nn.Flatten(), nn.Linear(16, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


class Session:
    def __init__(self, epochs=1, batch=2, workers=4, lr=2e-3):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.epochs = epochs
        self.loader = DataLoader(Chapters(Library(200, 5)), batch_size=batch, num_workers=workers)
        self.model = Boundary()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.opt, 5 * lr, total_steps=epochs * len(self.loader))

    def train_step(self, x, y):
        loss = nn.functional.binary_cross_entropy_with_logits(self.model(x), y.float())
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.schedule.step()
        return loss.item()

    def run(self):
        for epoch in range(self.epochs):
            began, recent = time.time(), []
            for step, (x, y) in enumerate(self.loader):
                recent.append(self.train_step(x, y))
                if step % 20 == 19:
                    print(f"{epoch}:{step} loss {np.mean(recent[-20:]):.3f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    Session().run()
