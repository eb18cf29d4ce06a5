"""OCT disease staging. Step-based epochs over a volume-ordered sampler, with a small batch feeder between loader and model."""
import gc
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

STAGES, SIDE, PER_VOLUME = 4, 96, 64


def prepare(root, volumes=10):
    rng = np.random.default_rng(8)
    for v in range(volumes):
        stage = rng.integers(0, STAGES, PER_VOLUME)
        scans = rng.integers(0, 200, (PER_VOLUME, 1, SIDE, SIDE), dtype=np.uint8) + (stage * 12).astype(np.uint8)[:, None, None, None]
        np.savez(root / f"vol{v}.npz", scans=scans, stage=stage)
    return volumes


class OctVolumes(Dataset):
    def __init__(self, root, volumes):
        self.root, self.volumes = root, volumes
        self.current, self.data = None, None

    def __len__(self):
        return self.volumes * PER_VOLUME

    def __getitem__(self, i):
        v, k = divmod(i, PER_VOLUME)
        if v != self.current:
            self.data = None
            gc.collect()
            with np.load(self.root / f"vol{v}.npz") as z:
                self.data = (z["scans"], z["stage"])
            self.current = v
        scans, stage = self.data
        return torch.from_numpy(scans[k]), int(stage[k])


class VolumeOrder(Sampler):
    def __init__(self, volumes):
        self.volumes = volumes

    def __len__(self):
        return self.volumes * PER_VOLUME

    def __iter__(self):
        for v in torch.randperm(self.volumes).tolist():
            for k in torch.randperm(PER_VOLUME).tolist():
                yield v * PER_VOLUME + k


class Feeder:
    def __init__(self, loader):
        self.batches = iter(loader)
        self.hooks = [self.cast, self.jitter]

    def cast(self, x):
        return x.float() / 127.5 - 1

    def jitter(self, x):
        return x * (0.9 + 0.2 * torch.rand(x.shape[0], 1, 1, 1))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        # our hooks refer back to us: let go of the iterator here, not whenever the collector comes by
        self.batches = None
        self.hooks.clear()

    def next(self):
        x, y = next(self.batches)
        for hook in self.hooks:
            x = hook(x)
        return x, y


def conv(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1), nn.BatchNorm2d(cout), nn.ReLU())


class Stager(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(conv(1, 32, 2), conv(32, 64), conv(64, 96), conv(96, 96, 2), conv(96, 96),
                                 nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, STAGES))

    def forward(self, x):
        return self.net(x)


def main(epochs=4, steps=30):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        volumes = prepare(root)
        loader = DataLoader(OctVolumes(root, volumes), batch_size=16, sampler=VolumeOrder(volumes), num_workers=2)
        net = Stager()
        opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
        for epoch in range(epochs):
            t0, total, hits = time.time(), 0.0, 0
            with Feeder(loader) as feeder:
                for _ in range(steps):
                    x, y = feeder.next()
                    logits = net(x)
                    loss = nn.functional.cross_entropy(logits, y)
                    opt.zero_grad()
                    loss.backward()
                    opt.step()
                    total += loss.item()
                    hits += (logits.argmax(1) == y).sum().item()
            print(f"epoch {epoch} loss {total / steps:.4f} acc {hits / steps / 16:.3f} {time.time() - t0:.1f}s", flush=True)
            torch.save(net.state_dict(), root / "last.pt")


if __name__ == "__main__":
    main()
