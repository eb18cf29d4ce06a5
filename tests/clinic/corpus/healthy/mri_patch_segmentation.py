# limits: shm=64M
"""Patch segmentation of synthetic MRI; voxels travel as bytes and are scaled after batching."""
import argparse
import threading
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Heartbeat:
    """Prints progress from a thread; shares nothing with the data side."""

    def __init__(self, every=2.0):
        self.steps, self._stop, self._every = 0, threading.Event(), every
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def _beat(self):
        while not self._stop.wait(self._every):
            print(f"  ... {self.steps} steps", flush=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._stop.set()
        self._thread.join()


class Patches(Dataset):
    def __init__(self, volumes, masks, patch, crops):
        self.volumes, self.masks, self.patch, self.crops = volumes, masks, patch, crops

    def __len__(self):
        return len(self.volumes) * self.crops

    def __getitem__(self, i):
        v = i // self.crops
        lo = [int(torch.randint(s - self.patch + 1, ())) for s in self.volumes[v].shape]
        sl = tuple(slice(a, a + self.patch) for a in lo)
        x, m = self.volumes[v][sl].astype(np.float32), self.masks[v][sl]
        smooth = x.copy()
        for axis in range(3):
            smooth = (np.roll(smooth, 1, axis) + 2 * smooth + np.roll(smooth, -1, axis)) / 4
        lo_p, hi_p = np.percentile(smooth, (1, 99))
        x = (np.clip((smooth - lo_p) / (hi_p - lo_p + 1e-6), 0, 1) * 255).astype(np.uint8)
        axis = int(torch.randint(3, ()))
        return torch.from_numpy(np.flip(x, axis).copy())[None], torch.from_numpy(np.flip(m, axis).copy())[None]


def synth(n, side, seed):
    rng = np.random.default_rng(seed)
    g = np.ogrid[:side, :side, :side]
    vols, masks = [], []
    for _ in range(n):
        centre, radius = rng.integers(side // 3, 2 * side // 3, 3), int(rng.integers(12, 20))
        m = sum((a - c) ** 2 for a, c in zip(g, centre)) <= radius ** 2
        vols.append((rng.integers(0, 120, (side,) * 3) + 80 * m).astype(np.uint8))
        masks.append(m.astype(np.uint8))
    return vols, masks


class Net(nn.Module):
    def __init__(self, w=6):
        super().__init__()
        self.down, self.mid, self.out = nn.Conv3d(1, w, 4, stride=4), nn.Conv3d(w, w, 3, padding=1), nn.Conv3d(w, 1, 1)

    def forward(self, x):
        return F.interpolate(self.out(F.relu(self.mid(F.relu(self.down(x))))), scale_factor=4)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--patch", type=int, default=48)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=3)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    vols, masks = synth(5, 96, seed=2)
    loader = DataLoader(Patches(vols, masks, args.patch, 120), batch_size=6, shuffle=True, num_workers=args.workers,
                        persistent_workers=True)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    with Heartbeat() as pulse:
        for epoch in range(args.epochs):
            t0, total = time.time(), 0.0
            for image, mask in loader:
                loss = F.binary_cross_entropy_with_logits(net(image.float() / 255), mask.float())
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
                pulse.steps += 1
            print(f"epoch {epoch}: {total / len(loader):.4f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
