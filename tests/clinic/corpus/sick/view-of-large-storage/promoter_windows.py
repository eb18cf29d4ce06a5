# cause: view-of-large-storage
# also: shm-exhausted
# limits: shm=64M
"""Promoter classifier on genome windows, reading from a 2-bit style encoded assembly."""
import bisect
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

MOTIF = np.array([3, 0, 3, 0, 0, 0, 3, 0], np.int8)   # TATAAATA


@dataclass
class Assembly:
    lengths: dict = field(default_factory=lambda: {"chr1": 34_000_000, "chr2": 22_000_000, "chrX": 14_000_000})
    sites: int = 3000

    def load(self):
        rng = np.random.default_rng(4)
        seqs, sites = {}, []
        for name, n in self.lengths.items():
            s = rng.integers(0, 4, n, dtype=np.int8)
            for pos in rng.integers(1000, n - 1000, self.sites // len(self.lengths)):
                s[pos:pos + 8] = MOTIF
                s[pos - 35:pos - 29] = 3
                sites.append((name, int(pos)))
            seqs[name] = torch.from_numpy(s)
        return seqs, sites


class WindowSet(Dataset):
    def __init__(self, seqs, sites, width=512):
        self.seqs, self.width = seqs, width
        self.names = list(seqs)
        self.known = {n: sorted(p for m, p in sites if m == n) for n in self.names}
        self.sites = sites

    def __len__(self):
        return 2 * len(self.sites)

    def _background(self, rng):
        while True:
            name = self.names[rng.integers(len(self.names))]
            at = int(rng.integers(1000, len(self.seqs[name]) - 1000))
            k = bisect.bisect(self.known[name], at - self.width)
            if k == len(self.known[name]) or self.known[name][k] > at + self.width:
                return name, at

    def __getitem__(self, i):
        label = i < len(self.sites)
        name, at = self.sites[i] if label else self._background(np.random.default_rng(i))
        lo = at - self.width // 2
        window = self.seqs[name][lo:lo + self.width]
        gc = float(((window == 1) | (window == 2)).float().mean())
        kmers = np.unique(np.lib.stride_tricks.sliding_window_view(window.numpy(), 6), axis=0).shape[0]
        return window, (gc, kmers / self.width), int(label)


class StratifiedOrder(Sampler):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        pos, neg = torch.randperm(self.n // 2), torch.randperm(self.n // 2) + self.n // 2
        return iter(torch.stack([pos, neg], 1).flatten().tolist())

    def __len__(self):
        return self.n


def gather(items):
    windows, stats, labels = zip(*items)
    return windows, torch.tensor(stats), torch.tensor(labels)


class PromoterNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(4, 24, 12), nn.ReLU(), nn.AdaptiveMaxPool1d(8), nn.Flatten())
        self.out = nn.Linear(24 * 8 + 2, 2)

    def forward(self, windows, stats):
        x = F.one_hot(torch.stack(windows).long(), 4).float().transpose(1, 2)
        return self.out(torch.cat([self.conv(x), stats], 1))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ds = WindowSet(*Assembly().load())
    loader = DataLoader(ds, batch_size=24, sampler=StratifiedOrder(len(ds)), num_workers=2, collate_fn=gather)
    net = PromoterNet()
    opt = torch.optim.AdamW(net.parameters(), 2e-3)
    for epoch in range(2):
        right = 0
        for windows, stats, y in loader:
            out = net(windows, stats)
            loss = F.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += int((out.argmax(1) == y).sum())
        print(f"epoch {epoch} accuracy {right / len(ds):.3f}", flush=True)


if __name__ == "__main__":
    main()
