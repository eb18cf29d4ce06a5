# cause: lock-serialises-workers
"""Land cover segmentation from an aerial tile archive mounted over the campus network."""
import multiprocessing as mp
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

ROUND_TRIP = 0.008      # seconds per request on the campus mount


class TileArchive:
    """Reads tiles and keeps the traffic figures that the data office asks for."""

    def __init__(self, root):
        self.root = Path(root)
        self.traffic = mp.Value("q", 0)
        self.requests = mp.Value("q", 0)

    def fetch(self, key):
        with self.traffic.get_lock():
            time.sleep(ROUND_TRIP)
            blob = (self.root / f"{key:05d}.tile").read_bytes()
            self.traffic.value += len(blob)
        with self.requests.get_lock():
            self.requests.value += 1
        return blob


class LandCover(Dataset):
    def __init__(self, archive, keys, augment):
        self.archive, self.keys, self.augment = archive, keys, augment

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        raw = np.frombuffer(self.archive.fetch(self.keys[i]), dtype=np.uint8).reshape(5, 64, 64)
        img, mask = raw[:4].astype(np.float32) / 255, (raw[4] % 5).astype(np.int64)
        if self.augment and i % 2:
            img, mask = img[:, :, ::-1].copy(), mask[:, ::-1].copy()
        return torch.from_numpy(img), torch.from_numpy(mask)


def write_archive(root, n):
    rng = np.random.default_rng(0)
    for k in range(n):
        rng.integers(0, 255, (5, 64, 64), dtype=np.uint8).tofile(os.path.join(root, f"{k:05d}.tile"))


def unet_ish():
    return nn.Sequential(nn.Conv2d(4, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(12, 5, 1))


def loaders(archive, n):
    keys = list(range(n))
    common = dict(num_workers=4, persistent_workers=True, prefetch_factor=4)
    return (DataLoader(LandCover(archive, keys[: n * 4 // 5], True), 16, shuffle=True, **common),
            DataLoader(LandCover(archive, keys[n * 4 // 5:], False), 16, **common))


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        write_archive(root, 500)
        archive = TileArchive(root)
        train, val = loaders(archive, 500)
        net, crit = unet_ish(), nn.CrossEntropyLoss()
        opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        for epoch in range(3):
            net.train()
            began = time.time()
            for img, mask in train:
                opt.zero_grad()
                loss = crit(net(img), mask)
                loss.backward()
                opt.step()
            net.eval()
            with torch.no_grad():
                acc = np.mean([(net(img).argmax(1) == mask).float().mean().item() for img, mask in val])
            print(f"epoch {epoch}: loss {loss.item():.3f} pixel acc {acc:.3f} "
                  f"({time.time() - began:.1f} s, {archive.traffic.value / 1e6:.1f} MB, {archive.requests.value} requests)")


if __name__ == "__main__":
    main()
