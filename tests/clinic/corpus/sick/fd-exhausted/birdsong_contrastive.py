# cause: fd-exhausted, rng-repeated
# limits: nofile=256
"""Contrastive learning of bird call embeddings with a memory bank of past clips for hard negatives."""
import argparse
import collections
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SR = 8000


class Compose:
    def __init__(self, *ops):
        self.ops = ops

    def __call__(self, wav, rng):
        for op in self.ops:
            wav = op(wav, rng)
        return wav


class RandomWindow:
    def __init__(self, seconds):
        self.n = int(seconds * SR)

    def __call__(self, wav, rng):
        start = int(rng.integers(0, len(wav) - self.n))
        return wav[start:start + self.n]


class BackgroundNoise:
    def __init__(self, snr_db=(5, 25)):
        self.snr_db = snr_db

    def __call__(self, wav, rng):
        snr = 10 ** (rng.uniform(*self.snr_db) / 20)
        noise = rng.standard_normal(len(wav)).astype(np.float32)
        return wav + noise * (np.abs(wav).mean() / snr)


class GainDrift:
    def __call__(self, wav, rng):
        a, b = rng.uniform(0.5, 1.5, size=2)
        return wav * np.linspace(a, b, len(wav), dtype=np.float32)


def log_spec(wav, n_fft=256, hop=64):
    frames = np.lib.stride_tricks.sliding_window_view(wav, n_fft)[::hop] * np.hanning(n_fft)
    return np.log1p(np.abs(np.fft.rfft(frames, axis=1))).astype(np.float32)


class CallPairs(Dataset):
    """Two augmented views of one recording."""

    def __init__(self, n_recordings, seconds=3.0, seed=1234):
        self.rng = np.random.default_rng(seed)
        t = np.arange(int(seconds * SR), dtype=np.float32) / SR
        self.recordings = []
        for _ in range(n_recordings):
            f0, f1, rate = self.rng.uniform(500, 3500), self.rng.uniform(500, 3500), self.rng.uniform(2, 12)
            sweep = f0 + (f1 - f0) * np.abs(np.sin(np.pi * rate * t))
            self.recordings.append(np.sin(2 * np.pi * np.cumsum(sweep) / SR).astype(np.float32))
        self.augment = Compose(RandomWindow(1.0), GainDrift(), BackgroundNoise())

    def __len__(self):
        return len(self.recordings)

    def __getitem__(self, i):
        wav = self.recordings[i]
        views = [torch.from_numpy(log_spec(self.augment(wav, self.rng))) for _ in range(2)]
        return {"query": views[0], "key": views[1], "recording": i}


class CallNet(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(129, 96, 5, 2), nn.ReLU(), nn.Conv1d(96, 96, 5, 2), nn.ReLU())
        self.head = nn.Linear(96, dim)

    def forward(self, spec):
        return F.normalize(self.head(self.conv(spec.transpose(1, 2)).mean(-1)), dim=-1)


class ClipBank:
    """Past clips; re-embedded with the current weights, so that negatives never go stale."""

    def __init__(self, batches):
        self.store = collections.deque(maxlen=batches)

    def push(self, clips, recording):
        self.store.append((clips, recording))

    def negatives(self, model, k):
        if not self.store:
            return None, None
        pick = torch.randint(0, len(self.store), (k,)).tolist()
        with torch.no_grad():
            z = model(torch.cat([self.store[j][0] for j in pick]))
        return z, torch.cat([self.store[j][1] for j in pick])


def info_nce(q, k, ids, neg, neg_ids, tau=0.1):
    logits = q @ k.T / tau
    if neg is not None:
        extra = (q @ neg.T / tau).masked_fill(ids[:, None] == neg_ids[None], -1e4)
        logits = torch.cat([logits, extra], dim=1)
    return F.cross_entropy(logits, torch.arange(len(q)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--recordings", type=int, default=1200)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--bank", type=int, default=512)
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--num-workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(7)
    pairs = CallPairs(args.recordings)
    loader = DataLoader(pairs, args.batch_size, shuffle=True, drop_last=True, num_workers=args.num_workers)
    model, bank = CallNet(), ClipBank(args.bank)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        t0, running = time.time(), 0.0
        for step, batch in enumerate(loader, 1):
            neg, neg_ids = bank.negatives(model, k=2)
            loss = info_nce(model(batch["query"]), model(batch["key"]), batch["recording"], neg, neg_ids)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            bank.push(batch["key"], batch["recording"])
            running += loss.item()
            if step % 25 == 0:
                print(f"epoch {epoch} {step}/{len(loader)} loss {running / step:.3f} bank {len(bank.store)}", flush=True)
        print(f"epoch {epoch}: {running / len(loader):.4f} in {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
