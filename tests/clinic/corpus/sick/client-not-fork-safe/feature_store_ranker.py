# cause: client-not-fork-safe
"""Pairwise ranker whose item embeddings live in a small feature store spoken to over TCP."""
import asyncio
import socketserver
import struct
import threading

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DIM = 32


class StoreHandler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        while True:
            head = self.rfile.read(4)
            if len(head) < 4:
                return
            (key,) = struct.unpack("<i", head)
            if key < 0:
                self.wfile.write(struct.pack("<i", self.server.items))
                continue
            vec = np.random.default_rng(key).standard_normal(DIM).astype("<f4")
            self.wfile.write(vec.tobytes())


class Store(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, items):
        super().__init__(("127.0.0.1", 0), StoreHandler)
        self.items = items
        threading.Thread(target=self.serve_forever, daemon=True).start()


class StoreClient:
    """Blocking facade over an asyncio connection, usable from any thread."""

    def __init__(self, address):
        self._address = address
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="store-io", daemon=True).start()
        self._conn = None

    async def _roundtrip(self, payload, reply_size):
        if self._conn is None:
            self._conn = await asyncio.open_connection(*self._address)
        reader, writer = self._conn
        writer.write(payload)
        await writer.drain()
        return await reader.readexactly(reply_size)

    def _call(self, payload, reply_size):
        return asyncio.run_coroutine_threadsafe(self._roundtrip(payload, reply_size), self._loop).result()

    def count(self):
        return struct.unpack("<i", self._call(struct.pack("<i", -1), 4))[0]

    def embedding(self, key):
        return np.frombuffer(self._call(struct.pack("<i", key), 4 * DIM), dtype="<f4")


class PairDataset(Dataset):
    def __init__(self, client, pairs, seed=0):
        self.client = client
        rng = np.random.default_rng(seed)
        self.taste = rng.standard_normal(DIM).astype(np.float32)
        self.pairs = rng.integers(0, client.count(), size=(pairs, 2))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        a, b = (self.client.embedding(int(k)) for k in self.pairs[i])
        return torch.tensor(a), torch.tensor(b), torch.tensor(float(a @ self.taste > b @ self.taste))


def loaders(client, batch_size=64):
    common = dict(batch_size=batch_size, num_workers=2)
    return (DataLoader(PairDataset(client, 4000, 1), shuffle=True, **common),
            DataLoader(PairDataset(client, 600, 1), shuffle=False, **common))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    store = Store(items=5000)
    client = StoreClient(store.server_address)
    print("store has", client.count(), "items", flush=True)
    train, val = loaders(client)
    score = nn.Sequential(nn.Linear(DIM, 48), nn.Tanh(), nn.Linear(48, 1))
    opt = torch.optim.Adam(score.parameters(), lr=3e-3)
    for epoch in range(3):
        for a, b, y in train:
            loss = nn.functional.binary_cross_entropy_with_logits((score(a) - score(b)).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            ok = sum((((score(a) - score(b)).squeeze(1) > 0) == (y > 0.5)).sum().item() for a, b, y in val)
        print(f"epoch {epoch}: val pair accuracy {ok / len(val.dataset):.3f}", flush=True)


if __name__ == "__main__":
    main()
