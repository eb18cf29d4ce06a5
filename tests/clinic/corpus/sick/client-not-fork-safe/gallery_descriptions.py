# cause: client-not-fork-safe
"""Text-to-style scores for a gallery.  Descriptions come from a small document service through an asynchronous client."""
import asyncio
import json
import threading
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

STYLES = ("baroque", "cubist", "naive", "rococo")
WORDS = ["light", "shadow", "figure", "drapery", "angle", "plane", "garden", "gold", "shell", "village", "flat", "curve"]


def describe(k):
    rng = np.random.default_rng(k)
    style = int(rng.integers(len(STYLES)))
    p = np.ones(len(WORDS))
    p[style * 3:style * 3 + 3] = 4
    return {"style": style, "text": " ".join(rng.choice(WORDS, size=120, p=p / p.sum()))}


async def serve(reader, writer):
    try:
        while line := await reader.readline():
            await asyncio.sleep(0.004)
            writer.write(json.dumps(describe(int(line))).encode() + b"\n")
            await writer.drain()
    except (ConnectionError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


class Loop:
    """One event loop on its own thread, shared by everything asynchronous in the process."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="io", daemon=True).start()

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()


class Documents:
    def __init__(self, io, port):
        self.io, self.port = io, port

    async def _get(self, keys):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        out = []
        for k in keys:
            writer.write(f"{k}\n".encode())
            await writer.drain()
            out.append(json.loads(await asyncio.wait_for(reader.readline(), timeout=5)))
        writer.close()
        return out

    def get(self, *keys):
        return self.io.call(self._get(keys))


class Gallery(Dataset):
    def __init__(self, documents, size, buckets=512):
        self.documents, self.size, self.buckets = documents, size, buckets

    def __len__(self):
        return self.size

    def __getitem__(self, k):
        (doc,) = self.documents.get(k)
        bag = torch.zeros(self.buckets)
        tokens = doc["text"].split()
        for a, b in zip(tokens, tokens[1:] + [""]):
            bag[zlib.crc32(a.encode()) % self.buckets] += 1
            bag[zlib.crc32((a + "_" + b).encode()) % self.buckets] += 0.3
        return bag / bag.sum(), doc["style"]


def main():
    torch.manual_seed(0)
    io = Loop()
    server = io.call(asyncio.start_server(serve, "127.0.0.1", 0))
    documents = Documents(io, server.sockets[0].getsockname()[1])
    data = Gallery(documents, 400)
    sample, _ = data[0]
    held = [data[k] for k in range(360, 400)]
    loader = DataLoader(Subset(data, range(360)), batch_size=20, shuffle=True, num_workers=4, persistent_workers=True)
    net = nn.Sequential(nn.Linear(len(sample), 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, len(STYLES)))
    opt = torch.optim.AdamW(net.parameters(), lr=5e-3)
    for epoch in range(3):
        net.train()
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            hits = sum(int(net(x[None]).argmax()) == y for x, y in held)
        print(f"epoch {epoch} loss {loss.item():.3f} held out {hits}/{len(held)}", flush=True)


if __name__ == "__main__":
    main()
