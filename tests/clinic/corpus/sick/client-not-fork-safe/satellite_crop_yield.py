# cause: client-not-fork-safe
"""Crop yield from monthly vegetation composites. Scenes are objects of a bucket, fetched with an async client."""
import argparse
import asyncio
import io
import pathlib
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MONTHS = 6


class Bucket:
    """Blocking facade of the async object store: calls run on the client's own event loop."""

    def __init__(self, root, max_parallel=8):
        self.root = pathlib.Path(root)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="bucket-io", daemon=True).start()
        self.slots = self._call(self._make_slots(max_parallel))

    async def _make_slots(self, n):
        return asyncio.Semaphore(n)

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def _get(self, key):
        async with self.slots:
            await asyncio.sleep(0)
            return (self.root / key).read_bytes()

    async def _get_many(self, keys):
        return await asyncio.gather(*(self._get(k) for k in keys))

    async def _list(self, prefix):
        return sorted(p.name for p in self.root.glob(prefix + "*"))

    def get_many(self, keys):
        return self._call(self._get_many(keys))

    def list(self, prefix=""):
        return self._call(self._list(prefix))


def fill_bucket(root, fields, seed=3):
    rng = np.random.default_rng(seed)
    fertility = rng.uniform(0, 1, fields)
    for f in range(fields):
        base = rng.random((40, 40)) * 0.2
        for m in range(MONTHS):
            green = np.sin(np.pi * (m + 1) / (MONTHS + 1)) * (0.4 + 0.5 * fertility[f])
            bands = np.stack([base + green, base - green / 2 + 0.5, base + 0.1 * m]).astype(np.float16)
            buf = io.BytesIO()
            np.savez_compressed(buf, bands=bands)
            (pathlib.Path(root) / f"field{f:04d}_{m}.npz").write_bytes(buf.getvalue())
    return (3 + 6 * fertility + rng.normal(0, 0.2, fields)).astype(np.float32)


class FieldSeries(Dataset):
    def __init__(self, bucket, ids, yields, jitter=0.0):
        self.bucket, self.ids, self.yields, self.jitter = bucket, ids, yields, jitter

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        field = self.ids[i]
        blobs = self.bucket.get_many([f"field{field:04d}_{m}.npz" for m in range(MONTHS)])
        frames = []
        for blob in blobs:
            with np.load(io.BytesIO(blob)) as z:
                bands = z["bands"].astype(np.float32)
            red, nir, swir = bands
            ndvi = (nir - red) / (np.abs(nir + red) + 1e-3)
            hist = np.histogram(ndvi, bins=16, range=(-1, 1))[0] / ndvi.size
            frames.append(np.concatenate([hist, bands.mean((1, 2)), np.percentile(swir, [5, 25, 50, 75, 95])]))
        x = np.stack(frames).astype(np.float32)
        if self.jitter:
            x += np.random.normal(0, self.jitter, x.shape).astype(np.float32)
        return torch.from_numpy(x), torch.tensor(self.yields[field])


class YieldNet(nn.Module):
    def __init__(self, features=24, hidden=32):
        super().__init__()
        self.rnn = nn.GRU(features, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1]).squeeze(1)


def train(args, root):
    yields = fill_bucket(root, args.fields)
    bucket = Bucket(root)
    known = sorted({int(name[5:9]) for name in bucket.list("field")})
    split = len(known) * 4 // 5
    opts = dict(num_workers=args.num_workers, persistent_workers=args.num_workers > 0)
    train_loader = DataLoader(FieldSeries(bucket, known[:split], yields, 0.01), args.batch_size, shuffle=True, **opts)
    test_loader = DataLoader(FieldSeries(bucket, known[split:], yields), args.batch_size, **opts)

    torch.manual_seed(args.seed)
    model = YieldNet()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    best = float("inf")
    for epoch in range(args.epochs):
        t0 = time.monotonic()
        for x, y in train_loader:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            err = torch.cat([model(x) - y for x, y in test_loader])
        rmse = err.pow(2).mean().sqrt().item()
        if rmse < best:
            best = rmse
            torch.save(model.state_dict(), pathlib.Path(root) / "best.pt")
        print(f"epoch {epoch}  rmse {rmse:.3f} t/ha  best {best:.3f}  ({time.monotonic() - t0:.1f} s)", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fields", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bucket-") as folder:
        train(options, folder)
