# cause: worker-out-of-memory
# limits: memory=900M
"""Tumour area regression from run-length encoded slide masks."""
import os
import struct
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

MAGIC = b"RLM1"


def encode(mask: np.ndarray) -> bytes:
    flat = mask.ravel()
    edges = np.flatnonzero(np.diff(flat)) + 1
    runs = np.diff(np.concatenate([[0], edges, [flat.size]])).astype("<u4")
    return MAGIC + struct.pack("<IIB", *mask.shape, int(flat[0])) + runs.tobytes()


def decode(blob: bytes) -> np.ndarray:
    h, w, first = struct.unpack_from("<IIB", blob, 4)
    runs = np.frombuffer(blob, "<u4", offset=13)
    values = (np.arange(len(runs)) + first) % 2
    return np.repeat(values.astype(np.float32), runs).reshape(h, w)


class SlideStore:
    def __init__(self, root: str):
        self.root = root

    def path(self, k):
        return os.path.join(self.root, f"slide{k:04d}.rlm")

    def fill(self, n):
        rng = np.random.default_rng(13)
        yy, xx = np.mgrid[:320, :320]
        for k in range(n):
            cy, cx, r = rng.uniform(80, 240), rng.uniform(80, 240), rng.uniform(15, 75)
            blob = encode((((yy - cy) ** 2 + (xx - cx) ** 2) < r * r).astype(np.uint8))
            if k == 151:
                side = 26000
                runs = np.full(side, side, "<u4")
                blob = MAGIC + struct.pack("<IIB", side, side, 0) + runs.tobytes()
            with open(self.path(k), "wb") as f:
                f.write(blob)

    def get(self, k):
        with open(self.path(k), "rb") as f:
            blob = f.read()
        if blob[:4] != MAGIC:
            raise ValueError(f"not a mask: {self.path(k)}")
        return decode(blob)


def block_mean(mask, side=32):
    h, w = mask.shape
    fy, fx = h // side, w // side
    return mask[:fy * side, :fx * side].reshape(side, fy, side, fx).mean((1, 3))


class Slides(Dataset):
    def __init__(self, store, n):
        self.store, self.n = store, n

    def __len__(self):
        return self.n

    def __getitem__(self, k):
        mask = self.store.get(k)
        time.sleep(0.002)
        small = block_mean(mask)
        rows = np.abs(np.diff(mask, axis=0)).sum() + np.abs(np.diff(mask, axis=1)).sum()
        return {"grid": torch.from_numpy(small[None]), "edge": torch.tensor(rows / mask.size, dtype=torch.float32),
                "area": torch.tensor(mask.mean(), dtype=torch.float32)}


class AreaNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten())
        self.fc = nn.Linear(32 * 49 + 1, 1)

    def forward(self, b):
        return self.fc(torch.cat([self.conv(b["grid"]), b["edge"][:, None]], 1)).squeeze(1)


def main(n=300, epochs=3):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="slides_") as root:
        store = SlideStore(root)
        store.fill(n)
        sampler = WeightedRandomSampler([1.0 + (k % 3) for k in range(n)], n, replacement=False)
        loader = DataLoader(Slides(store, n), 10, sampler=sampler, num_workers=2, persistent_workers=True)
        model = AreaNet()
        opt = torch.optim.Adam(model.parameters(), 1e-3)
        for epoch in range(epochs):
            total = 0.0
            for i, b in enumerate(loader):
                loss = nn.functional.mse_loss(model(b), b["area"])
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
                if i % 5 == 0:
                    print(f"epoch {epoch} batch {i} mse {loss.item():.5f}", flush=True)
            print(f"epoch {epoch} mean mse {total / len(loader):.5f}", flush=True)


if __name__ == "__main__":
    main()
