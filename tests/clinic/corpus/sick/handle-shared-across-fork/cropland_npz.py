# cause: handle-shared-across-fork
# also: rng-repeated
"""Crop type mapping from Sentinel-like patch time series kept in one .npz bundle."""
import os
import tempfile

import numpy as np
import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, Dataset

SETTINGS = yaml.safe_load("""
data: {patches: 320, bands: 6, dates: 8, side: 24, classes: 4}
loader: {batch_size: 16, num_workers: 3, shuffle: true, persistent_workers: true}
optim: {lr: 0.002, epochs: 3}
""")


def build_bundle(path, patches, bands, dates, side, classes):
    rng = np.random.default_rng(21)
    arrays, labels = {}, rng.integers(0, classes, patches)
    for i, lab in enumerate(labels):
        season = np.sin(np.linspace(0, 3, dates) + lab)[:, None, None, None]
        arrays[f"patch_{i:04d}"] = (1000 * (season + 1.5 + 0.2 * rng.standard_normal((dates, bands, side, side)))).astype(np.int16)
    np.savez(path, labels=labels, **arrays)


class CropPatches(Dataset):
    def __init__(self, path, split):
        self.bundle = np.load(path)
        self.labels = self.bundle["labels"]
        names = sorted(n for n in self.bundle.files if n.startswith("patch_"))
        cut = int(0.8 * len(names))
        self.names = names[:cut] if split == "train" else names[cut:]
        self.jitter = np.random.default_rng(99) if split == "train" else None

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        name = self.names[i]
        x = self.bundle[name].astype(np.float32) / 3000.0
        if self.jitter is not None:
            gain = self.jitter.uniform(0.8, 1.2, (1, x.shape[1], 1, 1)).astype(np.float32)
            keep = self.jitter.random(x.shape[0]) > 0.15
            x = x * gain * keep[:, None, None, None]
        return torch.from_numpy(x.astype(np.float32)), int(self.labels[int(name[-4:])])


class TemporalNet(nn.Module):
    def __init__(self, bands, classes):
        super().__init__()
        self.spatial = nn.Sequential(nn.Conv2d(bands, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.gru = nn.GRU(16, 24, batch_first=True)
        self.cls = nn.Linear(24, classes)

    def forward(self, x):
        b, t = x.shape[:2]
        h, _ = self.gru(self.spatial(x.flatten(0, 1)).view(b, t, -1))
        return self.cls(h[:, -1])


def loaders(path):
    opts = dict(SETTINGS["loader"])
    train = DataLoader(CropPatches(path, "train"), **opts)
    opts["shuffle"] = False
    return train, DataLoader(CropPatches(path, "val"), **opts)


def main():
    torch.manual_seed(0)
    d, o = SETTINGS["data"], SETTINGS["optim"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "patches.npz")
        build_bundle(path, **d)
        train, val = loaders(path)
        net = TemporalNet(d["bands"], d["classes"])
        opt = torch.optim.AdamW(net.parameters(), o["lr"])
        for epoch in range(o["epochs"]):
            for x, y in train:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad(); loss.backward(); opt.step()
            with torch.inference_mode():
                acc = torch.cat([(net(x).argmax(-1) == y).float() for x, y in val]).mean()
            print(f"epoch {epoch}: loss {loss.item():.3f} val acc {acc:.3f}", flush=True)


if __name__ == "__main__":
    main()
