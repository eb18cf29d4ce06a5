# cause: client-not-fork-safe
"""Road segmentation on map tiles fetched through a bucket client."""
import asyncio
import io
import os
import pathlib
import tempfile
import threading
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass(frozen=True)
class Opts:
    tiles: int = 120
    size: int = 96
    batch: int = 6
    workers: int = 2
    lr: float = 2e-3


class BucketClient:
    """Asynchronous inside, blocking outside."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="bucket-loop")
        self._thread.start()

    @property
    def loop(self):
        if self._pid != os.getpid():
            raise RuntimeError("This class is not fork-safe")
        return self._loop

    async def _read(self, key):
        await asyncio.sleep(0.002)
        return (self.root / key).read_bytes()

    async def _many(self, keys):
        return await asyncio.gather(*(self._read(k) for k in keys))

    def fetch(self, *keys):
        loop = self.loop
        return asyncio.run_coroutine_threadsafe(self._many(keys), loop).result()


class TileStore:
    def __init__(self, client, suffix=".png"):
        self.client, self.suffix = client, suffix

    def pair(self, name):
        raw, mask = self.client.fetch(f"sat_{name}{self.suffix}", f"road_{name}{self.suffix}")
        return [np.asarray(Image.open(io.BytesIO(b))) for b in (raw, mask)]


class Roads(Dataset):
    def __init__(self, store, names, train=True):
        self.store, self.names, self.train = store, names, train

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        sat, road = self.store.pair(self.names[i])
        x = torch.from_numpy(sat.astype(np.float32) / 255).permute(2, 0, 1)
        y = torch.from_numpy((road > 127).astype(np.float32))[None]
        if self.train and torch.rand(()) < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        return x, y


def draw(root, o):
    rng = np.random.default_rng(2)
    names = []
    for i in range(o.tiles):
        img = rng.integers(60, 120, (o.size, o.size, 3), dtype=np.uint8)
        mask = np.zeros((o.size, o.size), np.uint8)
        c = int(rng.integers(10, o.size - 10))
        mask[:, c - 3:c + 3] = 255
        img[mask > 0] = 200
        Image.fromarray(img).save(os.path.join(root, f"sat_{i}.png"))
        Image.fromarray(mask).save(os.path.join(root, f"road_{i}.png"))
        names.append(str(i))
    return names


def unet():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=2, dilation=2), nn.ReLU(), nn.Conv2d(16, 1, 1))


def run(o, root):
    names = draw(root, o)
    store = TileStore(BucketClient(root))
    print("probe", [a.shape for a in store.pair(names[0])], flush=True)
    net = unet()
    opt = torch.optim.AdamW(net.parameters(), lr=o.lr)
    train = DataLoader(Roads(store, names[:100]), o.batch, shuffle=True, num_workers=o.workers)
    for i, (x, y) in enumerate(train):
        loss = F.binary_cross_entropy_with_logits(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"[{i + 1}/{len(train)}] {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as root:
        run(Opts(), root)
