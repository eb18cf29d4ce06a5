# limits: tmpdir=long
"""Volcanic tremor detector. Windows come out of the workers as plain arrays and become tensors in the trainer."""
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


@dataclass(frozen=True)
class Cfg:
    windows: int = 1152
    length: int = 1024
    batch: int = 32
    epochs: int = 3
    workers: int = 2


class TremorWindows(Dataset):
    def __init__(self, cfg):
        self.cfg = cfg

    def __len__(self):
        return self.cfg.windows

    def __getitem__(self, i):
        rng = np.random.default_rng(1000 + i)
        wave = rng.standard_normal((3, self.cfg.length), dtype=np.float32)
        label = i % 3
        if label:
            t = np.arange(self.cfg.length, dtype=np.float32)
            wave += np.sin(t * (0.02 * label) + rng.uniform(0, 6.28)).astype(np.float32)
        return wave, label


def as_arrays(batch):
    waves, labels = zip(*batch)
    return np.stack(waves), np.asarray(labels, dtype=np.int64)


class ArrayLoader:
    """DataLoader whose batches stay numpy until the trainer asks for them."""

    def __init__(self, ds, cfg, shuffle):
        self.loader = DataLoader(ds, cfg.batch, shuffle=shuffle, num_workers=cfg.workers, collate_fn=as_arrays,
                                 persistent_workers=True)

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        for waves, labels in self.loader:
            yield torch.from_numpy(waves), torch.from_numpy(labels)


class TremorNet(nn.Module):
    def __init__(self, c=64, depth=6):
        super().__init__()
        layers, cin = [], 3
        for k in range(depth):
            layers += [nn.Conv1d(cin, c, 9, padding=4 * 2 ** (k % 3), dilation=2 ** (k % 3)), nn.GroupNorm(8, c), nn.GELU()]
            cin = c
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(c, 3)

    def forward(self, x):
        return self.head(self.body(x).mean(-1))


def evaluate(net, loader):
    net.eval()
    hits = n = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (net(x).argmax(1) == y).sum().item()
            n += len(y)
    return hits / n


def main(cfg=Cfg()):
    torch.manual_seed(0)
    run_dir = tempfile.mkdtemp(prefix="tremor_")
    train, valid = random_split(TremorWindows(cfg), [1024, 128], generator=torch.Generator().manual_seed(0))
    train_dl, valid_dl = ArrayLoader(train, cfg, True), ArrayLoader(valid, cfg, False)
    net = TremorNet()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=cfg.epochs * len(train_dl))
    for epoch in range(cfg.epochs):
        net.train()
        t0 = time.time()
        for step, (x, y) in enumerate(train_dl):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            sched.step()
        print(f"epoch {epoch} loss {loss.item():.4f} acc {evaluate(net, valid_dl):.3f} {time.time() - t0:.1f}s", flush=True)
        torch.save(net.state_dict(), os.path.join(run_dir, f"e{epoch}.pt"))


if __name__ == "__main__":
    main()
