# limits: shm=64M
"""Fish counting in underwater bursts of varying length; a sample is a whole burst, already a batch of frames."""
import argparse
import shutil
import struct
import tempfile
import time
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


class Burst(NamedTuple):
    frames: torch.Tensor
    fish: torch.Tensor
    name: str


class FrameBuffer:
    """Room for the longest burst the camera can take."""

    def __init__(self, longest, side):
        self.frames = torch.empty(longest, 1, side, side)
        self.n = 0

    def push(self, frame):
        self.frames[self.n, 0] = frame
        self.n += 1

    def take(self):
        return self.frames[: self.n].clone()


def write_burst(path, rng, side):
    n, fish = int(rng.integers(6, 14)), int(rng.integers(0, 9))
    clip = rng.integers(0, 60, (n, side, side), dtype=np.uint8)
    for y, x in rng.integers(0, side - 8, (fish, 2)):
        clip[:, y:y + 6, x:x + 8] += 150
    path.write_bytes(struct.pack("<HHH", n, side, fish) + zlib.compress(clip.tobytes(), 1))


class Bursts(Dataset):
    def __init__(self, folder, longest=64):
        self.files, self.longest = sorted(folder.glob("*.bst")), longest

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        raw = self.files[i].read_bytes()
        time.sleep(0.02)                                     # the archive is a tape robot's cache
        n, side, fish = struct.unpack("<HHH", raw[:6])
        clip = np.frombuffer(zlib.decompress(raw[6:]), np.uint8).reshape(n, side, side)
        buffer = FrameBuffer(self.longest, side)
        for frame in clip:
            buffer.push(torch.from_numpy(frame.astype(np.float32) / 255))
        return Burst(buffer.take(), torch.tensor(float(fish)), self.files[i].stem)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 5, 4), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU())
        self.out = nn.Linear(8, 1)

    def forward(self, frames):
        return self.out(self.conv(frames).mean((0, 2, 3))).squeeze(0)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bursts", type=int, default=90)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(0)
    root = Path(tempfile.mkdtemp())
    try:
        rng = np.random.default_rng(1)
        for i in range(args.bursts):
            write_burst(root / f"b{i:04d}.bst", rng, 128)
        data = Bursts(root)
        loader = DataLoader(data, batch_size=None, sampler=RandomSampler(data), num_workers=args.workers, persistent_workers=True)
        model = Counter()
        opt = torch.optim.Adam(model.parameters(), 3e-3)
        for epoch in range(args.epochs):
            worst, total = (0.0, ""), 0.0
            for burst in loader:
                loss = (model(burst.frames) - burst.fish).abs()
                opt.zero_grad()
                loss.backward()
                opt.step()
                time.sleep(0.03)                             # rest of the step runs on the accelerator
                total += loss.item()
                worst = max(worst, (loss.item(), burst.name))
            print(f"epoch {epoch} error {total / len(data):.3f} worst {worst[1]}", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
