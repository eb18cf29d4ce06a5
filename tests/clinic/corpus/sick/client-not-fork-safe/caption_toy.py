# cause: client-not-fork-safe
"""Caption matching: image vectors live in a small object service on this host, captions in memory."""
import argparse
import asyncio
import struct
import threading

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DIM = 128


class VectorService:
    """Stands for the object service of the cluster: GET <id> -> float32 vector."""

    def __init__(self, n):
        self.vectors = np.random.default_rng(0).normal(size=(n, DIM)).astype("<f4")
        self.port = None
        self._up = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._up.wait(10)

    async def _handle(self, reader, writer):
        try:
            while True:
                (i,) = struct.unpack("<I", await reader.readexactly(4))
                writer.write(self.vectors[i].tobytes())
                await writer.drain()
        except asyncio.IncompleteReadError:
            writer.close()

    async def _serve(self):
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._up.set()
        await server.serve_forever()


class VectorClient:
    def __init__(self, port):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="vector-io", daemon=True).start()
        self.reader, self.writer = self._call(asyncio.open_connection("127.0.0.1", port))
        self.gate = asyncio.Lock()

    def _call(self, coro):
        return asyncio.run_coroutine_threadsafe(coro, self.loop).result()

    async def _get(self, i):
        async with self.gate:
            self.writer.write(struct.pack("<I", i))
            await self.writer.drain()
            return await self.reader.readexactly(4 * DIM)

    def get(self, i):
        return np.frombuffer(self._call(self._get(i)), dtype="<f4")


class Pairs(Dataset):
    def __init__(self, client, captions):
        self.client, self.captions = client, captions

    def __len__(self):
        return len(self.captions)

    def __getitem__(self, i):
        v = self.client.get(i).copy()
        return torch.from_numpy(v / np.linalg.norm(v)), torch.tensor(self.captions[i])


class Matcher(nn.Module):
    def __init__(self, vocab, width=64):
        super().__init__()
        self.words = nn.EmbeddingBag(vocab, width)
        self.image = nn.Linear(DIM, width)

    def forward(self, v, words):
        a = nn.functional.normalize(self.image(v), dim=-1)
        b = nn.functional.normalize(self.words(words), dim=-1)
        return a @ b.t() * 10


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pairs", type=int, default=800)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--batch", type=int, default=40)
    a = p.parse_args()
    service = VectorService(a.pairs)
    client = VectorClient(service.port)
    rng = np.random.default_rng(1)
    data = Pairs(client, rng.integers(0, 500, (a.pairs, 9)).tolist())
    print("first vector norm", float(np.linalg.norm(client.get(0))), flush=True)
    model = Matcher(500)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (v, words) in enumerate(DataLoader(data, batch_size=a.batch, shuffle=True, num_workers=a.workers, drop_last=True)):
        scores = model(v, words)
        target = torch.arange(len(v))
        loss = (nn.functional.cross_entropy(scores, target) + nn.functional.cross_entropy(scores.t(), target)) / 2
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0:
            print(f"{step} {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
