"""Thumbnail rating; thumbnails come through an asynchronous store client."""
import asyncio
import os
import pathlib
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class StoreClient:
    """Blocking facade; the event loop belongs to the process that uses it."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self._loop, self._owner = None, None

    @property
    def loop(self):
        if self._owner != os.getpid():
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="store-io", daemon=True).start()
            self._owner = os.getpid()
        return self._loop

    async def _read(self, key):
        await asyncio.sleep(0.003)
        return (self.root / key).read_bytes()

    def get(self, key):
        return asyncio.run_coroutine_threadsafe(self._read(key), self.loop).result(timeout=20)


class Thumbnails(Dataset):
    def __init__(self, client, ratings):
        self.client, self.ratings = client, ratings
        self.keys = sorted(ratings)

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        key = self.keys[i]
        x = np.frombuffer(self.client.get(key), dtype=np.uint8).reshape(3, 48, 48)
        x = torch.from_numpy(x.astype(np.float32) / 255)
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
        return x, torch.tensor(self.ratings[key])


def upload(root, n):
    rng = np.random.default_rng(3)
    ratings = {}
    for i in range(n):
        r = float(rng.random())
        img = (rng.random((3, 48, 48)) * 120 + 120 * r).astype(np.uint8)
        (pathlib.Path(root) / f"{i:05d}").write_bytes(img.tobytes())
        ratings[f"{i:05d}"] = r
    return ratings


class Rater(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, 2), nn.ReLU())
        self.head = nn.Linear(24, 1)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3))).squeeze(1)


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.opt = torch.optim.Adam(model.parameters(), lr=1e-3)

    def run(self, epochs):
        for e in range(epochs):
            start = mark = time.time()
            waited, losses = 0.0, []
            for x, r in self.loader:
                waited += time.time() - mark
                loss = nn.functional.mse_loss(self.model(x), r)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                losses.append(loss.item())
                mark = time.time()
            print(f"epoch {e} mse {np.mean(losses):.4f} {time.time() - start:.1f}s (data {waited:.1f}s)", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        ratings = upload(root, 352)
        client = StoreClient(root)
        loader = DataLoader(Thumbnails(client, ratings), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
        Trainer(Rater(), loader).run(2)
