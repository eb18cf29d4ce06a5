# cause: straggler-samples
"""Action recognition on dive footage: a clip starts anywhere, decoding starts at the keyframe before it."""
import argparse
import bisect
import struct
import tempfile
import time
import zlib

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

H = W = 16


def write_footage(path, videos, frames):
    """Delta-coded container: keyframes every 6 frames, in quiet footage only at the very beginning."""
    index, rng = [], np.random.default_rng(0)
    with open(path, "wb") as f:
        for v in range(videos):
            offsets, keys = [], []
            quiet = v % 24 == 5
            for t in range(frames):
                key = t == 0 if quiet else t % 6 == 0
                data = zlib.compress(rng.integers(0, 32, H * W, dtype=np.uint8).tobytes(), 1)
                offsets.append(f.tell())
                if key:
                    keys.append(t)
                f.write(struct.pack("<BI", key, len(data)) + data)
            index.append((offsets, keys))
    return index


class Decoder:
    seek_cost = 0.0025      # one ranged read on the archive share

    def __init__(self, path, offsets, keys):
        self.path, self.offsets, self.keys = path, offsets, keys

    def clip(self, start, length):
        first = self.keys[bisect.bisect_right(self.keys, start) - 1]
        frame = np.zeros(H * W, dtype=np.uint8)
        out = []
        with open(self.path, "rb") as f:
            for t in range(first, start + length):
                time.sleep(self.seek_cost)
                f.seek(self.offsets[t])
                key, size = struct.unpack("<BI", f.read(5))
                delta = np.frombuffer(zlib.decompress(f.read(size)), dtype=np.uint8)
                frame = delta.copy() if key else frame + delta
                if t >= start:
                    out.append(frame)
        return np.stack(out).reshape(length, H, W)


class DiveClips(Dataset):
    def __init__(self, path, index, frames, length=4):
        self.path, self.index, self.frames, self.length = path, index, frames, length

    def __len__(self):
        return len(self.index)

    def __getitem__(self, v):
        start = self.frames - self.length - v % 5
        clip = Decoder(self.path, *self.index[v]).clip(start, self.length)
        return torch.from_numpy(clip).float().div_(255), v % 4


class Tiny3D(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv3d(1, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool3d(4), nn.Flatten())
        self.g = nn.Linear(6 * 64, 4)

    def forward(self, x):
        return self.g(self.f(x.unsqueeze(1)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--videos", type=int, default=288)
    ap.add_argument("--frames", type=int, default=400)
    ap.add_argument("--epochs", type=int, default=1)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.NamedTemporaryFile(suffix=".dvx") as tmp:
        index = write_footage(tmp.name, args.videos, args.frames)
        ds = DiveClips(tmp.name, index, args.frames)
        batches = BatchSampler(RandomSampler(ds), batch_size=2, drop_last=False)
        loader = DataLoader(ds, batch_sampler=batches, num_workers=4, prefetch_factor=2, persistent_workers=True)
        net = Tiny3D()
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        for epoch in range(args.epochs):
            waits, mark = [], time.time()
            for step, (clip, y) in enumerate(loader):
                waits.append(time.time() - mark)
                loss = nn.functional.cross_entropy(net(clip), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                mark = time.time()
            print(f"epoch {epoch}: {step + 1} steps, loss {loss.item():.3f}, data {sum(waits):.1f} s, worst {max(waits):.2f} s")


if __name__ == "__main__":
    main()
