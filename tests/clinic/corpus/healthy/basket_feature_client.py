"""Next-basket model; product vectors are fetched through an asyncio client with a blocking facade."""
import asyncio
import json
import os
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DIM = 32


async def _answer(reader, writer):
    while line := await reader.readline():
        ids = json.loads(line)
        rows = [np.cos(np.arange(DIM) * (1 + p % 23) / 5).round(4).tolist() for p in ids]
        writer.write(json.dumps(rows).encode() + b"\n")
        await writer.drain()
    writer.close()


def start_service():
    ready, box = threading.Event(), {}

    async def serve():
        server = await asyncio.start_server(_answer, "127.0.0.1", 0, limit=1 << 20)
        box["port"] = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    ready.wait()
    return box["port"]


class ProductClient:
    """Keeps an event loop in a thread; both belong to the process that made them."""

    def __init__(self, port):
        self.port = port
        self._pid = None
        self._loop = None

    def _ensure(self):
        if self._pid != os.getpid():
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True).start()
            self._pid = os.getpid()
        return self._loop

    async def _vectors(self, ids):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        try:
            writer.write(json.dumps(ids).encode() + b"\n")
            await writer.drain()
            return json.loads(await asyncio.wait_for(reader.readline(), 10))
        finally:
            writer.close()

    def vectors(self, ids):
        return asyncio.run_coroutine_threadsafe(self._vectors(ids), self._ensure()).result(timeout=15)


class Baskets(Dataset):
    def __init__(self, client, n, seed, length=24):
        rng = np.random.default_rng(seed)
        self.client = client
        self.items = rng.integers(0, 300, (n, length))
        self.target = self.items.sum(1) % 10

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        rows = self.client.vectors(self.items[i].tolist())
        return torch.tensor(rows), int(self.target[i])


class BasketModel(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.proj = nn.Linear(DIM, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0)
        self.enc = nn.TransformerEncoder(layer, 3)
        self.out = nn.Linear(width, 10)

    def forward(self, x):
        return self.out(self.enc(self.proj(x)).mean(1))


def main():
    torch.manual_seed(0)
    client = ProductClient(start_service())
    print("service up,", len(client.vectors([1, 2, 3])), "vectors")
    train = DataLoader(Baskets(client, 640, 1), 32, shuffle=True, num_workers=1, persistent_workers=True)
    valid = DataLoader(Baskets(client, 64, 2), 32, num_workers=1, persistent_workers=True)
    model = BasketModel()
    opt = torch.optim.AdamW(model.parameters(), 3e-4)
    ce = nn.CrossEntropyLoss()
    for epoch in range(3):
        t0 = time.time()
        for x, y in train:
            loss = ce(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            v = np.mean([ce(model(x), y).item() for x, y in valid])
        print(f"epoch {epoch} train {loss.item():.3f} valid {v:.3f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
