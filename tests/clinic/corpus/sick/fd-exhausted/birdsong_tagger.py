# cause: fd-exhausted
# limits: nofile=256
"""Multi-label bird song tagging on short synthetic field recordings.

Each clip is a mixture of a few chirps over coloured noise; the tagger sees a log
spectrogram and predicts which of the species are present.
"""
import argparse
import logging
import time
from collections import defaultdict

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

log = logging.getLogger("birdsong")
RATE = 8000
SPECIES = 6


class FieldRecordings(Dataset):
    """Renders a clip for an index; the same index always gives the same clip."""

    def __init__(self, clips, seconds=0.5, seed=11):
        self.samples = int(seconds * RATE)
        rng = np.random.default_rng(seed)
        self.presence = (rng.random((clips, SPECIES)) < 0.3).astype(np.float32)
        self.seeds = rng.integers(0, 2**31, clips)
        self.window = np.hanning(256).astype(np.float32)

    def __len__(self):
        return len(self.seeds)

    def _render(self, index):
        rng = np.random.default_rng(self.seeds[index])
        t = np.arange(self.samples, dtype=np.float32) / RATE
        audio = 0.2 * rng.standard_normal(self.samples).astype(np.float32)
        for species in np.flatnonzero(self.presence[index]):
            low = 500 + 450 * species
            start = rng.uniform(0, 0.2)
            sweep = low * t + rng.uniform(100, 400) * t**2
            envelope = np.exp(-((t - start - 0.2) ** 2) / 0.01)
            audio += envelope * np.sin(2 * np.pi * sweep)
        return audio

    def _spectrogram(self, audio):
        hop = 128
        frames = np.lib.stride_tricks.sliding_window_view(audio, 256)[::hop]
        power = np.abs(np.fft.rfft(frames * self.window, axis=1)) ** 2
        return np.log1p(power[:, :128]).astype(np.float32).T

    def __getitem__(self, index):
        spectrogram = self._spectrogram(self._render(index))
        return torch.from_numpy(spectrogram.copy())[None], torch.from_numpy(self.presence[index])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d((8, 1)), nn.Flatten())
        self.head = nn.Linear(128, SPECIES)

    def forward(self, x):
        return self.head(self.body(x))


class Meter:
    """Collects what the epoch summary needs; macro average precision wants all scores at once."""

    def __init__(self):
        self.columns = defaultdict(list)

    def update(self, **values):
        for name, value in values.items():
            self.columns[name].append(value.detach() if torch.is_tensor(value) else value)

    def mean(self, name):
        return float(np.mean(self.columns[name]))

    def average_precision(self):
        score, truth = torch.cat(self.columns["score"]), torch.cat(self.columns["truth"])
        result = []
        for k in range(truth.shape[1]):
            order = score[:, k].argsort(descending=True)
            hits = truth[order, k]
            precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
            result.append(float((precision * hits).sum() / hits.sum().clamp(min=1)))
        return float(np.mean(result))


def run_epoch(model, loader, criterion, optimizer=None):
    meter = Meter()
    model.train(optimizer is not None)
    with torch.set_grad_enabled(optimizer is not None):
        for spectrogram, truth in loader:
            logits = model(spectrogram)
            loss = criterion(logits, truth)
            if optimizer is not None:
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
            meter.update(loss=loss.item(), score=logits.sigmoid(), truth=truth)
    return meter


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--clips", type=int, default=1900)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    train, val = random_split(FieldRecordings(args.clips), [0.9, 0.1])
    train_loader = DataLoader(train, args.batch_size, shuffle=True, num_workers=2, persistent_workers=True)
    val_loader = DataLoader(val, 40, num_workers=2, persistent_workers=True)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(args.epochs):
        began = time.time()
        fitted = run_epoch(model, train_loader, criterion, optimizer)
        checked = run_epoch(model, val_loader, criterion)
        log.info("epoch %d loss %.4f mAP %.3f | val loss %.4f mAP %.3f | %.1f s", epoch, fitted.mean("loss"),
                 fitted.average_precision(), checked.mean("loss"), checked.average_precision(), time.time() - began)


if __name__ == "__main__":
    main()
