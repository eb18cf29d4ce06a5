# cause: exception-not-picklable
# also: dataset-raises
"""Denoising of CT slices from a small binary archive; slices are checked while they are read."""
import functools
import logging
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

log = logging.getLogger("ct")
SIDE = 128


def checked(kind):
    """Decorator for readers: turns what goes wrong inside into an error that names the file."""

    class ReadError(ValueError):
        def __init__(self, path, why):
            super().__init__(f"{kind} {path.name}: {why}")
            self.path = path

    def wrap(read):
        @functools.wraps(read)
        def inner(self, path):
            try:
                return read(self, path)
            except (zlib.error, ValueError) as e:
                raise ReadError(path, e) from e
        return inner

    return wrap


class Archive:
    """Folder of slices: zlib-compressed int16 Hounsfield units."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def fill(self, count, seed):
        g = np.random.default_rng(seed)
        yy, xx = np.mgrid[-1:1:SIDE * 1j, -1:1:SIDE * 1j]
        for i in range(count):
            hu = np.full((SIDE, SIDE), -1000.0)
            hu[(xx / 0.85) ** 2 + (yy / 0.65) ** 2 < 1] = 40
            for _ in range(int(g.integers(3, 9))):
                cx, cy, r = g.uniform(-0.5, 0.5, 2).tolist() + [g.uniform(0.05, 0.25)]
                hu[(xx - cx) ** 2 + (yy - cy) ** 2 < r * r] = g.choice([-700, 60, 300, 900])
            data = zlib.compress(hu.astype("<i2").tobytes())
            if i % 331 == 330:
                data = data[:len(data) // 2]
            (self.folder / f"slice_{i:04d}.hu").write_bytes(data)

    def paths(self):
        return sorted(self.folder.glob("*.hu"))

    @checked("slice")
    def read(self, path):
        raw = zlib.decompress(path.read_bytes())
        return np.frombuffer(raw, "<i2").reshape(SIDE, SIDE).astype(np.float32)


def blur(x, sigma):
    r = int(3 * sigma) + 1
    k = np.exp(-0.5 * (np.arange(-r, r + 1) / sigma) ** 2)
    k /= k.sum()
    x = np.apply_along_axis(np.convolve, 0, x, k, "same")
    return np.apply_along_axis(np.convolve, 1, x, k, "same")


class LowDose(Dataset):
    """Pairs (simulated low dose, normal dose)."""

    def __init__(self, archive, window=(-500, 1000)):
        self.archive, self.window = archive, window
        self.names = np.array([p.name for p in archive.paths()])

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        hu = self.archive.read(self.archive.folder / str(self.names[i]))
        lo, hi = self.window
        clean = np.clip((hu - lo) / (hi - lo), 0, 1)
        grain = blur(np.random.standard_normal(clean.shape), 1.2)
        noisy = clean + 0.25 * grain * (0.5 + clean)
        return torch.from_numpy(noisy.astype(np.float32))[None], torch.from_numpy(clean.astype(np.float32))[None]


class Denoiser(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, x):
        return x - self.body(x)


def psnr(a, b):
    return -10 * torch.log10(nn.functional.mse_loss(a, b)).item()


def main(epochs=2, count=700, batch=16, workers=2):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="ct-") as folder:
        archive = Archive(folder)
        archive.fill(count, seed=5)
        train, val = random_split(LowDose(archive), [count - 60, 60], torch.Generator().manual_seed(1))
        train_loader = DataLoader(train, batch, shuffle=True, num_workers=workers, persistent_workers=True)
        val_loader = DataLoader(val, 20)
        net = Denoiser()
        opt = torch.optim.Adam(net.parameters(), 2e-3)
        for epoch in range(epochs):
            t = time.time()
            for step, (noisy, clean) in enumerate(train_loader):
                loss = nn.functional.l1_loss(net(noisy), clean)
                opt.zero_grad()
                loss.backward()
                opt.step()
                if step % 10 == 0:
                    log.info("epoch %d step %d/%d l1 %.4f", epoch, step, len(train_loader), loss.item())
            with torch.no_grad():
                score = np.mean([psnr(net(x), y) for x, y in val_loader])
            log.info("epoch %d PSNR %.2f dB (%.1f s)", epoch, score, time.time() - t)


if __name__ == "__main__":
    main()
