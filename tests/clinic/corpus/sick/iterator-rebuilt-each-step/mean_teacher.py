# cause: iterator-rebuilt-each-step
"""Mean-teacher semi-supervised training: a few labelled signals, many unlabelled ones."""
import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    def __init__(self, n, labelled, seed):
        rng = np.random.default_rng(seed)
        self.freq = rng.uniform(2, 12, n)
        self.labelled = labelled

    def __len__(self):
        return len(self.freq)

    def view(self, i):
        t = np.linspace(0, 8, 8192)
        x = np.sin(2 * np.pi * self.freq[i] * t + np.random.uniform(0, 6)) + np.random.normal(0, 0.6, t.size)
        spec = np.abs(np.fft.rfft(x.reshape(16, -1) * np.hanning(512), axis=1)).mean(0)
        env = np.abs(np.fft.ifft(np.fft.fft(x) * (np.arange(t.size) < 400)))
        return torch.from_numpy(np.concatenate([np.log1p(spec[:64]), env[::128]]).astype(np.float32))

    def __getitem__(self, i):
        if self.labelled:
            return self.view(i), int(self.freq[i] > 7)
        return self.view(i), self.view(i)


class BatchSource:
    """Hands out batches on demand so that the two streams need not have equal length."""

    def __init__(self, dataset, batch_size, workers=2):
        self.loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True, num_workers=workers)

    def draw(self):
        return next(iter(self.loader))


class MeanTeacher:
    def __init__(self, decay=0.97):
        self.student = nn.Sequential(nn.Linear(128, 48), nn.ReLU(), nn.Linear(48, 2))
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.decay = decay
        self.opt = torch.optim.Adam(self.student.parameters(), lr=2e-3)

    def step(self, labelled, unlabelled, weight):
        x, y = labelled
        a, b = unlabelled
        sup = nn.functional.cross_entropy(self.student(x), y)
        cons = nn.functional.mse_loss(self.student(a).softmax(1), self.teacher(b).softmax(1))
        loss = sup + weight * cons
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        with torch.no_grad():
            for pt, ps in zip(self.teacher.parameters(), self.student.parameters()):
                pt.lerp_(ps, 1 - self.decay)
        return sup.item(), cons.item()


def main(epochs=3, steps=16):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    labelled = BatchSource(Signals(400, True, 0), 16)
    unlabelled = BatchSource(Signals(2000, False, 1), 24)
    algo = MeanTeacher()
    for epoch in range(epochs):
        history = []
        for _ in range(steps):
            history.append(algo.step(labelled.draw(), unlabelled.draw(), weight=min(1.0, epoch / 2)))
        sup, cons = np.mean(history, axis=0)
        print(f"epoch {epoch}: supervised {sup:.3f} consistency {cons:.4f}", flush=True)


if __name__ == "__main__":
    main()
