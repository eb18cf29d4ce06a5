# cause: iterable-not-sharded
"""P-wave arrival picking from waveform archives kept as .npz volumes."""
import os
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

N_VOL, PER_VOL, LENGTH = 12, 64, 3000


def write_archive(root: Path, rng):
    for v in range(N_VOL):
        onset = rng.integers(600, 2400, PER_VOL)
        w = rng.normal(0, 0.2, (PER_VOL, LENGTH)).astype(np.float32)
        for k, o in enumerate(onset):
            t = np.arange(LENGTH - o)
            w[k, o:] += (np.sin(t / 7.0) * np.exp(-t / 300.0)).astype(np.float32)
        np.savez_compressed(root / f"vol{v:03d}.npz", wave=w, onset=onset)


def bandpass(x, lo=0.01, hi=0.12):
    f = np.fft.rfft(x)
    k = np.arange(len(f)) / len(f)
    f[(k < lo) | (k > hi)] = 0
    return np.fft.irfft(f, len(x))


def sta_lta(x, s=40, l=400):
    c = np.cumsum(np.concatenate([[0.0], x ** 2]))
    sta = (c[s:] - c[:-s]) / s
    lta = (c[l:] - c[:-l]) / l
    n = min(len(sta), len(lta))
    out = np.zeros(len(x))
    out[-n:] = sta[-n:] / (lta[-n:] + 1e-6)
    return out


class ShuffleBuffer:
    def __init__(self, source, size, seed):
        self.source, self.size, self.rand = source, size, random.Random(seed)

    def __iter__(self):
        held = []
        for item in self.source:
            if len(held) < self.size:
                held.append(item)
                continue
            j = self.rand.randrange(self.size)
            held[j], item = item, held[j]
            yield item
        self.rand.shuffle(held)
        yield from held


class WaveformArchive(IterableDataset):
    def __init__(self, root, buffer=128):
        self.volumes = sorted(Path(root).glob("*.npz"))
        self.rank = int(os.environ.get("RANK", 0))
        self.world = int(os.environ.get("WORLD_SIZE", 1))
        self.buffer = buffer

    def traces(self):
        for path in self.volumes[self.rank::self.world]:
            with np.load(path) as z:
                wave, onset = z["wave"], z["onset"]
            for w, o in zip(wave, onset):
                yield w, o

    def __iter__(self):
        for w, o in ShuffleBuffer(self.traces(), self.buffer, torch.initial_seed()):
            feats = np.stack([bandpass(w), bandpass(w, 0.12, 0.4), sta_lta(w)]).astype(np.float32)
            feats /= feats.std(1, keepdims=True) + 1e-6
            yield torch.from_numpy(feats), torch.tensor(o / LENGTH, dtype=torch.float32)


def main():
    torch.manual_seed(11)
    with tempfile.TemporaryDirectory() as tmp:
        write_archive(Path(tmp), np.random.default_rng(0))
        loader = DataLoader(WaveformArchive(tmp), batch_size=32, num_workers=2, persistent_workers=True)
        net = nn.Sequential(nn.Conv1d(3, 8, 15, stride=8), nn.ReLU(), nn.Conv1d(8, 16, 9, stride=4), nn.ReLU(),
                            nn.AdaptiveMaxPool1d(8), nn.Flatten(), nn.Linear(128, 1), nn.Sigmoid())
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        for epoch in range(4):
            err = []
            for x, y in loader:
                p = net(x).squeeze(1)
                loss = nn.functional.smooth_l1_loss(p, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                err.append((p - y).abs().mean().item())
            print(f"epoch {epoch}: {len(err)} batches, mean pick error {np.mean(err) * LENGTH:.0f} samples", flush=True)


if __name__ == "__main__":
    main()
