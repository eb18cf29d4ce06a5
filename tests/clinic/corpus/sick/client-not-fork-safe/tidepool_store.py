# cause: client-not-fork-safe
"""Species presence in tide pools; quadrat photos live in an object store that is reached through an async client."""
import argparse
import asyncio
import io
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class AsyncBucket:
    """get/put/list as coroutines, at most `limit` requests in flight."""

    def __init__(self, root, limit=8, latency=0.003):
        self.root, self.latency = Path(root), latency
        self.slots = asyncio.Semaphore(limit)

    async def get(self, key):
        async with self.slots:
            await asyncio.sleep(self.latency)
            return (self.root / key).read_bytes()

    async def list(self, prefix):
        await asyncio.sleep(self.latency)
        return sorted(p.name for p in self.root.iterdir() if p.name.startswith(prefix))


class Bucket:
    """Blocking front of AsyncBucket: coroutines run in one private event loop."""
    _loop = None
    _start = threading.Lock()

    def __init__(self, root):
        self.remote = AsyncBucket(root)

    @classmethod
    def loop(cls):
        with cls._start:
            if cls._loop is None:
                cls._loop = asyncio.new_event_loop()
                threading.Thread(target=cls._loop.run_forever, name="bucket-io", daemon=True).start()
        return cls._loop

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop()).result()

    def get(self, key):
        return self._call(self.remote.get(key))

    def list(self, prefix=""):
        return self._call(self.remote.list(prefix))

    def get_many(self, keys):
        async def gather():
            return await asyncio.gather(*(self.remote.get(k) for k in keys))
        return self._call(gather())


class Quadrats(Dataset):
    def __init__(self, bucket, site):
        self.bucket = bucket
        self.keys = bucket.list(site)

    def __len__(self):
        return len(self.keys)

    def __getitems__(self, indices):
        keys = [self.keys[i] for i in indices]
        return [self.decode(k, raw) for k, raw in zip(keys, self.bucket.get_many(keys))]

    def __getitem__(self, i):
        return self.decode(self.keys[i], self.bucket.get(self.keys[i]))

    @staticmethod
    def decode(key, raw):
        img = Image.open(io.BytesIO(raw)).convert("RGB").resize((64, 64), Image.BICUBIC)
        x = torch.from_numpy(np.asarray(img).copy()).permute(2, 0, 1).float() / 255
        return x, torch.tensor([float(c) for c in key.rsplit(".", 1)[0].split("_")[2]])


def photograph(root, n):
    rng = np.random.default_rng(17)
    for i in range(n):
        present = rng.integers(0, 2, 3)
        px = rng.integers(0, 120, (128, 128, 3))
        for c in range(3):
            px[20 * c: 20 * c + 18, :, c] += 120 * present[c]
        Image.fromarray(px.astype(np.uint8)).save(Path(root) / f"site{i % 2}_{i:04d}_{''.join(map(str, present))}.png")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--photos", type=int, default=240)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        photograph(root, args.photos)
        data = Quadrats(Bucket(root), "site")
        loader = DataLoader(data, 16, shuffle=True, num_workers=args.workers, persistent_workers=True)
        model = nn.Sequential(nn.Conv2d(3, 12, 5, 3), nn.ReLU(), nn.Conv2d(12, 12, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))
        model(torch.zeros(1, 3, 64, 64))
        opt = torch.optim.Adam(model.parameters(), 2e-3)
        for epoch in range(args.epochs):
            for x, y in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
