# cause: worker-segfault
"""Target classification on packed radar sweeps."""
import argparse
import logging
import os
import struct
import sys
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

log = logging.getLogger("radar")
BINS = 128


class SweepDecoder:
    """Port of the vendor's unpacker: 12 bit samples, two in three bytes, with a check of its invariants."""

    def __init__(self, bins):
        self.bins = bins

    def _require(self, ok):
        if not ok:
            os.abort()

    def unpack(self, blob):
        gain, count = struct.unpack_from("<HH", blob)
        self._require(count <= self.bins)
        body = np.frombuffer(blob, np.uint8, offset=4).reshape(-1, 3).astype(np.uint16)
        lo = body[:, 0] | (body[:, 1] & 15) << 8
        hi = body[:, 1] >> 4 | body[:, 2] << 4
        return np.stack([lo, hi], 1).ravel()[:count].astype(np.float32) * gain / 4096


def pack(samples, gain, count=None):
    s = samples.astype(np.uint16).reshape(-1, 2)
    out = np.stack([s[:, 0] & 255, s[:, 0] >> 8 | (s[:, 1] & 15) << 4, s[:, 1] >> 4], 1).astype(np.uint8)
    return struct.pack("<HH", gain, count or samples.size) + out.tobytes()


class Sweeps(Dataset):
    def __init__(self, folder):
        self.files = sorted(os.path.join(folder, f) for f in os.listdir(folder))
        self.decoder = SweepDecoder(BINS)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with open(self.files[i], "rb") as f:
            x = self.decoder.unpack(f.read())
        spectrum = np.abs(np.fft.rfft(x - x.mean())).astype(np.float32)
        return torch.from_numpy(np.log1p(spectrum)), int(self.files[i][-5])


def capture(folder, n):
    rng = np.random.default_rng(5)
    t = np.arange(BINS)
    for i in range(n):
        c = i % 3
        s = 2000 + 900 * np.sin(t * (0.2 + 0.3 * c)) + rng.normal(0, 120, BINS)
        bad = i == 402
        with open(os.path.join(folder, f"{i:05d}_{c}.swp"), "wb") as f:
            f.write(pack(s.clip(0, 4095), int(rng.integers(1, 9)), 60000 if bad else None))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(message)s")
    ap = argparse.ArgumentParser()
    ap.add_argument("--sweeps", type=int, default=600)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        capture(folder, args.sweeps)
        data = Sweeps(folder)
        loader = DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 20, drop_last=True), num_workers=args.workers)
        net = nn.Sequential(nn.Linear(BINS // 2 + 1, 32), nn.ReLU(), nn.Linear(32, 3))
        opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 5 == 0:
                log.info("step %d loss %.4f", step, loss.item())
