"""Text-to-style scores for a gallery.  Descriptions come from a small document service, one asynchronous client per process."""
import asyncio
import json
import os
import tempfile
import time
import threading
import zlib
from multiprocessing import get_context

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STYLES = ("baroque", "cubist", "naive", "rococo")
WORDS = ["light", "shadow", "figure", "drapery", "angle", "plane", "garden", "gold", "shell", "village", "flat", "curve"]


def describe(k):
    rng = np.random.default_rng(k)
    style = int(rng.integers(len(STYLES)))
    p = np.ones(len(WORDS))
    p[style * 3:style * 3 + 3] = 4
    return {"style": style, "text": " ".join(rng.choice(WORDS, size=120, p=p / p.sum()))}


async def answer(reader, writer):
    while line := await reader.readline():
        await asyncio.sleep(0.005)
        writer.write(json.dumps(describe(int(line))).encode() + b"\n")
        await writer.drain()
    writer.close()


def service(pipe):
    async def run():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


class Documents:
    """The loop and its thread are made on first use in the process that asks."""

    def __init__(self, port):
        self.port, self.owner, self.loop = port, None, None

    def _loop(self):
        if self.owner != os.getpid():
            self.loop, self.owner = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=self.loop.run_forever, name="io", daemon=True).start()
        return self.loop

    async def _get(self, key):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"{key}\n".encode())
        await writer.drain()
        line = await asyncio.wait_for(reader.readline(), timeout=10)
        writer.close()
        await writer.wait_closed()
        return json.loads(line)

    def get(self, key):
        return asyncio.run_coroutine_threadsafe(self._get(key), self._loop()).result(timeout=15)


class Gallery(Dataset):
    def __init__(self, documents, size, buckets=512):
        self.documents, self.size, self.buckets = documents, size, buckets

    def __len__(self):
        return self.size

    def __getitem__(self, k):
        doc = self.documents.get(k)
        tokens = doc["text"].split()
        slots = [zlib.crc32(t.encode()) % self.buckets for t in tokens]
        slots += [zlib.crc32(f"{a}_{b}".encode()) % self.buckets for a, b in zip(tokens, tokens[1:])]
        bag = torch.bincount(torch.tensor(slots), minlength=self.buckets).float()
        return bag / bag.sum(), doc["style"]


def fit(data, folder):
    loader = DataLoader(data, batch_size=20, shuffle=True, num_workers=2, persistent_workers=True)
    net = nn.Sequential(nn.Linear(data.buckets, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, len(STYLES)))
    opt = torch.optim.AdamW(net.parameters(), lr=5e-3)
    for epoch in range(3):
        hits = 0
        for x, y in loader:
            logits = net(x)
            loss = nn.functional.cross_entropy(logits, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.13)    # stands for the accelerator
            hits += (logits.argmax(1) == y).sum().item()
        torch.save(net.state_dict(), os.path.join(folder, "last.pt"))
        print(f"epoch {epoch} loss {loss.item():.3f} accuracy {hits / len(data):.3f}", flush=True)


def main():
    torch.manual_seed(0)
    ctx = get_context("fork")
    here, there = ctx.Pipe()
    server = ctx.Process(target=service, args=(there,), daemon=True)
    server.start()
    with tempfile.TemporaryDirectory(prefix="gallery_") as folder:
        try:
            fit(Gallery(Documents(here.recv()), 320), folder)
        finally:
            server.terminate()
            server.join()


if __name__ == "__main__":
    main()
