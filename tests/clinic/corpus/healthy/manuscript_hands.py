"""Scribal hands in manuscripts; the pages come from an object store client with its own event loop."""
import asyncio
import os
import threading

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class ObjectStore:
    """Synchronous face of an asynchronous store; every process has an event loop of its own."""

    def __init__(self, objects):
        self._objects = objects
        self._pid = self._loop = None

    def _running_loop(self):
        if self._pid != os.getpid():
            self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=self._loop.run_forever, name="store-io", daemon=True).start()
        return self._loop

    async def _fetch(self, key):
        await asyncio.sleep(0)
        return self._objects[key]

    async def _fetch_many(self, keys):
        return await asyncio.gather(*(self._fetch(k) for k in keys))

    def get_many(self, keys):
        return asyncio.run_coroutine_threadsafe(self._fetch_many(keys), self._running_loop()).result(timeout=30)

    def keys(self, prefix):
        return sorted(k for k in self._objects if k.startswith(prefix))


_store = None


def connect():
    global _store
    if _store is None:
        rng = np.random.default_rng(0)
        objects = {}
        for n in range(400):
            hand = int(rng.integers(0, 6))
            objects[f"pages/{n:05d}"] = rng.normal(hand * 0.2, 1, (3, 48, 48)).astype(np.float32).tobytes()
            objects[f"labels/{n:05d}"] = bytes([hand])
        _store = ObjectStore(objects)
    return _store


class Pages(Dataset):
    def __init__(self):
        store = connect()
        self.keys = store.keys("pages/")
        self.hands = [b[0] for b in store.get_many(store.keys("labels/"))]

    def __len__(self):
        return len(self.keys)

    def __getitems__(self, indices):
        raw = connect().get_many([self.keys[i] for i in indices])
        return [(self.page(r), self.hands[i]) for r, i in zip(raw, indices)]

    def __getitem__(self, index):
        return self.__getitems__([index])[0]

    @staticmethod
    def page(raw):
        page = np.frombuffer(raw, np.float32).reshape(3, 48, 48)
        spectrum = np.abs(np.fft.fft2(page)).astype(np.float32)
        return torch.from_numpy(np.concatenate([page, np.log1p(spectrum)]))


class Prefetch:
    def __init__(self, loader):
        self.loader = loader

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        pending = None
        for batch in self.loader:
            if pending is not None:
                yield pending
            pending = batch
        if pending is not None:
            yield pending


def build_model():
    return nn.Sequential(nn.Conv2d(6, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(48, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(576, 6))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    parts = random_split(Pages(), [320, 80])
    train, test = (Prefetch(DataLoader(p, batch_size=16, shuffle=i == 0, num_workers=2 - i, persistent_workers=True))
                   for i, p in enumerate(parts))
    model = build_model()
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    for epoch in range(5):
        for pages, hands in train:
            loss = nn.functional.cross_entropy(model(pages), hands)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            hit = sum((model(p).argmax(1) == h).sum().item() for p, h in test)
        print(f"epoch {epoch} of {len(train)} batches: loss {loss.item():.4f} accuracy {hit / 80:.3f}", flush=True)


if __name__ == "__main__":
    main()
