# cause: shm-leaked
# limits: shm=512M
"""Vehicle counter on traffic-camera stills. Decoded frames are cached in memory visible to all workers."""
import io
import os
import time
import uuid
from multiprocessing import resource_tracker, shared_memory

import numpy as np
import torch
import torch.nn as nn
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset

H, W = 240, 320
RUN = f"{int(time.time())}_{uuid.uuid4().hex[:6]}"


class FrameCache:
    """get() returns the decoded frame or None, put() publishes one for the other workers."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.size = H * W * 3

    def _open(self, key, create):
        seg = shared_memory.SharedMemory(f"{self.prefix}_{key}", create=create, size=self.size if create else 0)
        # the tracker of a finished worker would take the segment away from the others
        resource_tracker.unregister(seg._name, "shared_memory")
        return seg

    def get(self, key):
        try:
            seg = self._open(key, create=False)
        except FileNotFoundError:
            return None
        frame = np.ndarray((H, W, 3), np.uint8, buffer=seg.buf).copy()
        seg.close()
        return frame

    def put(self, key, frame):
        try:
            seg = self._open(key, create=True)
        except FileExistsError:
            return
        np.ndarray((H, W, 3), np.uint8, buffer=seg.buf)[:] = frame
        seg.close()


class Stills(Dataset):
    def __init__(self, blobs, counts):
        self.blobs, self.counts = blobs, counts
        self.cache = FrameCache(f"tcam_{RUN}")

    def __len__(self):
        return len(self.blobs)

    def __getitem__(self, i):
        frame = self.cache.get(i)
        if frame is None:
            frame = np.asarray(Image.open(io.BytesIO(self.blobs[i])).convert("RGB").resize((W, H), Image.LANCZOS))
            self.cache.put(i, frame)
        x = torch.from_numpy(frame).permute(2, 0, 1).float().div_(255)
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
        return x[:, ::2, ::2].contiguous(), self.counts[i]


def camera(n):
    rng = np.random.default_rng(2)
    blobs, counts = [], []
    for _ in range(n):
        im = Image.new("RGB", (960, 720), (90, 90, 95))
        d = ImageDraw.Draw(im)
        k = int(rng.integers(0, 9))
        for _ in range(k):
            x, y = rng.integers(0, 860), rng.integers(0, 660)
            d.rectangle([x, y, x + 90, y + 50], fill=tuple(int(v) for v in rng.integers(0, 255, 3)))
        buf = io.BytesIO()
        im.save(buf, "JPEG", quality=85)
        blobs.append(buf.getvalue())
        counts.append(float(k))
    return blobs, counts


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Stills(*camera(480)), batch_size=16, shuffle=True, num_workers=2)
    net = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 1))
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    for epoch in range(3):
        t0, err = time.time(), 0.0
        for x, y in loader:
            loss = nn.functional.l1_loss(net(x).squeeze(1), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            err += loss.item()
        print(f"pid {os.getpid()} epoch {epoch} mae {err / len(loader):.3f} in {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
