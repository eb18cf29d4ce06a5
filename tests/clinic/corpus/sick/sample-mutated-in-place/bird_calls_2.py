# cause: sample-mutated-in-place
"""Bird call tagging. The clips fit in memory, features are computed by the loader workers."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

SR, SECONDS = 16000, 2


def load_clips(n, rng):
    t = np.arange(SR * SECONDS, dtype=np.float32) / SR
    clips, tags = [], []
    for _ in range(n):
        k = int(rng.integers(0, 5))
        f = 1000 * (k + 1) + rng.normal(0, 60)
        wob = np.sin(2 * np.pi * (6 + k) * t)
        clips.append((np.sin(2 * np.pi * f * t + 4 * wob) * 0.5 + rng.normal(0, 0.1, len(t))).astype(np.float32))
        tags.append(k)
    return clips, tags


class Gain:
    def __init__(self, low_db, high_db):
        self.low, self.high = low_db, high_db

    def __call__(self, wave):
        db = self.low + (self.high - self.low) * torch.rand(()).item()
        wave *= 10.0 ** (db / 20.0)
        return wave


class Hum:
    """Mains hum mixed under the recording."""

    def __init__(self, level=0.02):
        t = np.arange(SR * SECONDS, dtype=np.float32) / SR
        self.tone = level * np.sin(2 * np.pi * 50 * t).astype(np.float32)

    def __call__(self, wave):
        wave += self.tone
        return wave


class LogSpec:
    def __init__(self, n_fft=512, hop=160):
        self.n_fft, self.hop = n_fft, hop
        self.win = np.hanning(n_fft).astype(np.float32)

    def __call__(self, wave):
        frames = np.lib.stride_tricks.sliding_window_view(wave, self.n_fft)[::self.hop]
        return np.log(np.abs(np.fft.rfft(frames * self.win, axis=1)).astype(np.float32) + 1e-5)


class CallDataset(Dataset):
    def __init__(self, clips, tags, chain):
        self.clips, self.tags, self.chain = clips, tags, chain

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, i):
        out = self.clips[i]
        for op in self.chain:
            out = op(out)
        return torch.from_numpy(out), self.tags[i]


def fit(train, val, epochs):
    net = nn.Sequential(nn.BatchNorm1d(257), nn.Conv1d(257, 24, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(24, 5))
    opt = torch.optim.RMSprop(net.parameters(), 1e-3)
    for e in range(epochs):
        net.train()
        level = []
        for x, y in train:
            loss = nn.functional.cross_entropy(net(x.transpose(1, 2)), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            level.append(x.mean().item())
        net.eval()
        with torch.no_grad():
            acc = np.mean([(net(x.transpose(1, 2)).argmax(1) == y).float().mean().item() for x, y in val])
        print(f"{e}: loss {loss.item():.3f} val {acc:.3f} mean log energy {np.mean(level):+.2f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(4)
    rng = np.random.default_rng(4)
    opts = dict(num_workers=2, persistent_workers=True, collate_fn=default_collate)
    tr = DataLoader(CallDataset(*load_clips(300, rng), [Gain(-9, 3), Hum(), LogSpec()]), 20, shuffle=True, **opts)
    va = DataLoader(CallDataset(*load_clips(80, rng), [LogSpec()]), 40, **opts)
    fit(tr, va, 5)
