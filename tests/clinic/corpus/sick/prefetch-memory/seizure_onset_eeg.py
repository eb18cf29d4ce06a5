# cause: prefetch-memory
# also: shm-exhausted
# limits: shm=64M
"""Seizure onset detection in multichannel EEG. Windows are cut from synthetic recordings and band filtered."""
import argparse
import math

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

CHANNELS, LENGTH = 18, 4096


class BandPass:
    def __init__(self, low, high, rate=256):
        frequency = np.fft.rfftfreq(LENGTH, 1 / rate)
        self.gain = ((frequency >= low) & (frequency <= high)).astype(np.float32)

    def __call__(self, signal):
        return np.fft.irfft(np.fft.rfft(signal, axis=-1) * self.gain, LENGTH, axis=-1)


class Standardise:
    def __call__(self, signal):
        return (signal - signal.mean(-1, keepdims=True)) / (signal.std(-1, keepdims=True) + 1e-6)


class EEGWindows(Dataset):
    def __init__(self, recordings, windows_per_recording, seed):
        rng = np.random.default_rng(seed)
        self.background = rng.standard_normal((recordings, CHANNELS, LENGTH * 2)).astype(np.float16)
        self.onset = rng.random(recordings * windows_per_recording) < 0.25
        self.per = windows_per_recording
        self.steps = [BandPass(0.5, 40), Standardise()]

    def __len__(self):
        return len(self.onset)

    def __getitem__(self, index):
        start = np.random.randint(0, LENGTH)
        signal = self.background[index // self.per, :, start:start + LENGTH].astype(np.float32)
        if self.onset[index]:
            t = np.arange(LENGTH) / 256
            signal[: CHANNELS // 3] += 1.5 * np.sin(2 * np.pi * 3.5 * t) * (t > 4)
        for step in self.steps:
            signal = step(signal)
        return torch.from_numpy(signal.astype(np.float32)), torch.tensor(float(self.onset[index]))


class OnsetNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        layers, inside = [], CHANNELS
        for k in (9, 7, 5, 5):
            layers += [nn.Conv1d(inside, width, k, stride=2, padding=k // 2), nn.BatchNorm1d(width), nn.GELU()]
            inside = width
        self.features = nn.Sequential(*layers)
        self.attention = nn.Linear(width, 1)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = self.features(x).transpose(1, 2)
        weight = self.attention(h).softmax(1)
        return self.out((h * weight).sum(1)).squeeze(-1)


def lookahead(seconds, batches_per_second, workers):
    """How many batches each worker should have ready to ride out a pause of the storage."""
    return max(2, math.ceil(seconds * batches_per_second / workers))


def make_loader(dataset, args, balanced):
    sampler = None
    if balanced:
        rate = dataset.onset.mean()
        weights = np.where(dataset.onset, 0.5 / rate, 0.5 / (1 - rate))
        sampler = WeightedRandomSampler(torch.from_numpy(weights), len(dataset))
    return DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, num_workers=args.workers,
                      prefetch_factor=lookahead(args.buffer_seconds, 4, args.workers), persistent_workers=True)


def evaluate(model, loader):
    model.eval()
    right = seen = 0
    with torch.inference_mode():
        for signal, label in loader:
            right += ((model(signal) > 0).float() == label).sum().item()
            seen += len(label)
    model.train()
    return right / seen


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--buffer-seconds", type=float, default=6)
    args = parser.parse_args()
    torch.manual_seed(1)
    train = EEGWindows(48, 12, seed=1)
    val = EEGWindows(8, 12, seed=2)
    train_loader = make_loader(train, args, balanced=True)
    val_loader = make_loader(val, args, balanced=False)
    model = OnsetNet()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=args.epochs * len(train_loader))
    loss_function = nn.BCEWithLogitsLoss()
    for epoch in range(args.epochs):
        for step, (signal, label) in enumerate(train_loader):
            loss = loss_function(model(signal), label)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if step % 10 == 0:
                print(f"{epoch}:{step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} accuracy {evaluate(model, val_loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
