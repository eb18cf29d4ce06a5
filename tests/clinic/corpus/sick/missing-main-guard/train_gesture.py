# cause: missing-main-guard
"""Gesture classifier for wrist sensors. Run as a script."""
import math

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset

mp.set_start_method("spawn", force=True)

SAMPLES, WINDOW, AXES, CLASSES = 600, 128, 6, 4
BATCH_SIZE = 30
EPOCHS = 2


def synth_gesture(seed):
    rng = np.random.default_rng(seed)
    label = int(rng.integers(CLASSES))
    t = np.linspace(0, 2 * math.pi, WINDOW, dtype=np.float32)
    base = np.stack([np.sin((label + 1) * t + k) for k in range(AXES)])
    return base + rng.normal(0, 0.3, base.shape).astype(np.float32), label


class Gestures(Dataset):
    def __init__(self, seeds, jitter=0.0):
        self.seeds = list(seeds)
        self.jitter = jitter

    def __len__(self):
        return len(self.seeds)

    def __getitem__(self, i):
        x, y = synth_gesture(self.seeds[i])
        x = torch.from_numpy(x)
        if self.jitter:
            x = x * (1 + self.jitter * torch.randn(AXES, 1))
        return x, y


class GestureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(AXES, 24, batch_first=True)
        self.fc = nn.Linear(24, CLASSES)

    def forward(self, x):
        return self.fc(self.rnn(x[:, :, ::4].transpose(1, 2))[1][0])


def accuracy(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum().item()
            total += len(y)
    return right / total


train_loader = DataLoader(Gestures(range(SAMPLES), jitter=0.1), BATCH_SIZE, shuffle=True, num_workers=2)
test_loader = DataLoader(Gestures(range(SAMPLES, SAMPLES + 120)), BATCH_SIZE)
model = GestureNet()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

for epoch in range(EPOCHS):
    model.train()
    for x, y in train_loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    print(f"epoch {epoch}: test accuracy {accuracy(model, test_loader):.3f}", flush=True)
