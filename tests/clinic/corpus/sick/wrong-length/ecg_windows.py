# cause: wrong-length
"""Beat-to-beat arrhythmia detector on overlapping windows of Holter recordings."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

FS = 250


class HolterWindows(Dataset):
    def __init__(self, recordings, labels, win_s=10.0, hop_s=4.0):
        self.rec, self.lab = recordings, labels
        self.win, self.hop = int(win_s * FS), int(hop_s * FS)
        self.table = []
        for r, sig in enumerate(self.rec):
            for start in range(0, len(sig) - self.win + 1, self.hop):
                self.table.append((r, start))
        self.table = np.asarray(self.table)

    def __len__(self):
        return sum(len(sig) // self.win for sig in self.rec)

    def baseline(self, x):
        k = np.hanning(FS)
        return np.convolve(x, k / k.sum(), mode="same")

    def __getitem__(self, i):
        r, start = self.table[i]
        x = self.rec[r][start:start + self.win]
        x = x - self.baseline(x)
        x = x / (np.abs(x).max() + 1e-6)
        spec = np.abs(np.fft.rfft(x * np.hanning(len(x))))[:120]
        return {"wave": torch.from_numpy(x.astype(np.float32)), "spec": torch.from_numpy(spec.astype(np.float32)),
                "y": float(self.lab[r])}


def simulate(n_rec, seconds, rng):
    recs, labs = [], []
    t = np.arange(seconds * FS) / FS
    for _ in range(n_rec):
        sick = rng.random() < 0.5
        rr = rng.normal(0.8, 0.15 if sick else 0.02, int(seconds / 0.5)).clip(0.4, 1.4).cumsum()
        x = np.zeros_like(t)
        for b in rr[rr < seconds - 1]:
            k = int(b * FS)
            x[k:k + 20] += np.hanning(20)
        x += 0.3 * np.sin(2 * np.pi * 0.2 * t) + rng.normal(0, 0.05, len(t))
        recs.append(x.astype(np.float32))
        labs.append(sick)
    return recs, labs


class RhythmNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(1, 8, 25, stride=5), nn.ReLU(), nn.Conv1d(8, 16, 9, stride=4), nn.ReLU(),
                                  nn.AdaptiveAvgPool1d(8), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(128 + 120, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, b):
        return self.head(torch.cat([self.conv(b["wave"][:, None]), b["spec"]], 1)).squeeze(1)


def loaders(rng):
    train = HolterWindows(*simulate(60, 240, rng))
    val = HolterWindows(*simulate(8, 120, rng), hop_s=10.0)
    common = dict(num_workers=2, persistent_workers=True)
    return (DataLoader(train, 24, sampler=RandomSampler(train), **common), DataLoader(val, 48, **common))


def main(epochs=4):
    torch.manual_seed(2)
    tr, va = loaders(np.random.default_rng(2))
    net, lossf = RhythmNet(), nn.BCEWithLogitsLoss()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for e in range(epochs):
        for b in tr:
            loss = lossf(net(b), b["y"].float())
            opt.zero_grad(), loss.backward(), opt.step()
        with torch.inference_mode():
            ok = [((net(b) > 0) == (b["y"] > 0.5)).float() for b in va]
        print(f"epoch {e}: train loss {loss:.3f}  val acc {torch.cat(ok).mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
