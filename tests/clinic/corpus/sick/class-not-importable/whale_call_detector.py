# cause: class-not-importable
# also: slow-worker-start
"""Finds whale calls in hydrophone snippets: log-spectrogram and a small convolutional net."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

RATE, LENGTH = 2000, 4000


def synthesise(rng, call):
    t = np.arange(LENGTH) / RATE
    sea = np.cumsum(rng.normal(0, 0.08, LENGTH))
    sea -= np.convolve(sea, np.ones(200) / 200, mode="same")
    x = sea + rng.normal(0, 0.6, LENGTH)
    if call:
        start, sweep = rng.uniform(0.2, 1.0), rng.uniform(80, 220)
        active = (t > start) & (t < start + 0.7)
        x[active] += 0.7 * np.sin(2 * np.pi * (100 * t[active] + sweep * (t[active] - start) ** 2))
    return x.astype(np.float32)


class Snippets(Dataset):
    def __init__(self, n, seed=8):
        rng = np.random.default_rng(seed)
        self.present = rng.random(n) < 0.4
        self.waves = np.stack([synthesise(rng, c) for c in self.present])
        self.window = np.hanning(256).astype(np.float32)

    def __len__(self):
        return len(self.waves)

    def spectrogram(self, x):
        frames = np.lib.stride_tricks.sliding_window_view(x, 256)[::32] * self.window
        power = np.abs(np.fft.rfft(frames, n=512)) ** 2
        db = np.log10(power + 1e-6)
        db -= np.median(db, axis=0)
        return db[:, :96].T.astype(np.float32)

    def __getitem__(self, i):
        return torch.from_numpy(self.spectrogram(self.waves[i]))[None], torch.tensor(float(self.present[i]))


class Augmented(Dataset):
    """Applies a list of augmentations to the spectrograms of another dataset."""

    def __init__(self, base, steps):
        self.base, self.steps = base, steps

    def __len__(self):
        return len(self.base)

    def __getitem__(self, i):
        x, y = self.base[i]
        for step in self.steps:
            x = step(x)
        return x, y


class Gain:
    def __init__(self, spread=0.2):
        self.spread = spread

    def __call__(self, x):
        return x + self.spread * torch.randn(1)


def network():
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.AdaptiveMaxPool2d(3), nn.Flatten(), nn.Linear(144, 1), nn.Flatten(0))


def average_precision(score, truth):
    truth = truth[score.argsort(descending=True)]
    precision = truth.cumsum(0) / torch.arange(1, len(truth) + 1)
    return (precision * truth).sum().item() / max(truth.sum().item(), 1)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--snippets", type=int, default=1200)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--start", choices=["fork", "spawn", "forkserver"], default="spawn")
    ap.add_argument("--mask", type=int, default=12, help="widest band that is blanked in training (0: none)")
    args = ap.parse_args()
    torch.manual_seed(0)

    steps = [Gain()]
    if args.mask:
        class BandMask:
            """SpecAugment along frequency."""

            def __init__(self, widest):
                self.widest = widest

            def __call__(self, x):
                width = int(torch.randint(1, self.widest + 1, ()))
                low = int(torch.randint(0, x.shape[1] - width, ()))
                x = x.clone()
                x[:, low:low + width] = 0
                return x

        steps.append(BandMask(args.mask))

    train_set, val_set = random_split(Snippets(args.snippets), [0.8, 0.2])
    options = dict(batch_size=args.batch, num_workers=args.workers)
    if args.workers:
        options.update(persistent_workers=True, multiprocessing_context=args.start)
    val_loader = DataLoader(val_set, **options)
    train_loader = DataLoader(Augmented(train_set, steps), shuffle=True, **options)

    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        tic, losses = time.time(), []
        for x, y in train_loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            out = [(model(x), y) for x, y in val_loader]
        ap_value = average_precision(torch.cat([s for s, _ in out]), torch.cat([y for _, y in out]))
        print(f"epoch {epoch}: loss {np.mean(losses):.3f}  AP {ap_value:.3f}  {time.time() - tic:.1f} s", flush=True)
