# limits: nofile=256
"""Whale call classification; the epoch's confusion statistics are made from everything that was seen."""
import argparse
import logging
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("whales")
CALLS = ("blue", "fin", "humpback", "minke", "ship")


class Hydrophone(Dataset):
    """Renders two seconds of sea at 2 kHz, with one call in it."""

    def __init__(self, clips, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(CALLS), clips)
        self.seed = seed

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        rng = np.random.default_rng([self.seed, index])
        t = np.arange(4000) / 2000
        label = int(self.labels[index])
        sea = np.fft.irfft(np.fft.rfft(rng.standard_normal(4000)) / np.sqrt(np.arange(1, 2002)), 4000) * 3
        centre, bend = 60 + 140 * label, rng.uniform(-40, 40)
        for harmonic in range(1, 6):
            envelope = np.exp(-((t - rng.uniform(0.5, 1.5)) ** 2) / 0.05)
            sea += envelope * np.sin(2 * np.pi * harmonic * (centre * t + bend * t**2)) / harmonic
        sea += 0.05 * np.random.standard_normal(4000)
        planes = []
        for window in (128, 256, 512):
            frames = np.lib.stride_tricks.sliding_window_view(sea, window)[::40][:80] * np.hanning(window)
            power = np.log1p(np.abs(np.fft.rfft(frames, 512, axis=1)[:, :64]))
            planes.append(power[:80])
        shape = min(len(p) for p in planes)
        return torch.from_numpy(np.stack([p[:shape] for p in planes]).astype(np.float32)), label


class Confusion:
    """Keeps every prediction and label of an epoch."""

    def __init__(self):
        self.guesses, self.labels = [], []

    def add(self, logits, labels):
        self.guesses.append(logits.detach().argmax(1))
        self.labels.append(labels.clone())

    def table(self):
        flat = torch.cat(self.labels) * len(CALLS) + torch.cat(self.guesses)
        return torch.bincount(flat, minlength=len(CALLS) ** 2).view(len(CALLS), -1)

    def accuracy(self):
        table = self.table()
        return (table.diagonal().sum() / table.sum()).item()


class Heartbeat(threading.Thread):
    """Logs that the job is alive."""

    def __init__(self, every):
        super().__init__(daemon=True)
        self.every, self.done, self.lock, self.steps = every, threading.Event(), threading.Lock(), 0

    def tick(self):
        with self.lock:
            self.steps += 1

    def run(self):
        while not self.done.wait(self.every):
            with self.lock:
                log.info("alive, %d steps", self.steps)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d((2, 8)), nn.Flatten(), nn.Linear(256, len(CALLS)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=900)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)  # small convolutions, leave the cores to the loader
    train_loader = DataLoader(Hydrophone(args.clips, 1), 3, shuffle=True, num_workers=args.workers,
                              persistent_workers=args.workers > 0)
    val_loader = DataLoader(Hydrophone(args.clips // 10, 2), 16, num_workers=args.workers,
                            persistent_workers=args.workers > 0)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    heartbeat = None
    for epoch in range(args.epochs):
        began, seen = time.time(), Confusion()
        model.train()
        for sound, labels in train_loader:
            if heartbeat is None:
                heartbeat = Heartbeat(10)
                heartbeat.start()
            logits = model(sound)
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.add(logits, labels)
            heartbeat.tick()
        model.eval()
        checked = Confusion()
        with torch.no_grad():
            for sound, labels in val_loader:
                checked.add(model(sound), labels)
        log.info("epoch %d accuracy %.3f val %.3f, %.1f clips/s", epoch, seen.accuracy(), checked.accuracy(),
                 args.clips / (time.time() - began))
    heartbeat.done.set()
    heartbeat.join()


if __name__ == "__main__":
    main()
