# cause: client-not-fork-safe
"""Land cover from aerial tiles that live behind the lab's tile service."""
import argparse
import asyncio
import json
import multiprocessing
import threading

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

TILE = 64
N_COVER = 5


# ---- the tile service (on the cluster this is another machine) ----
def run_tile_service(port_pipe, n_tiles):
    rng = np.random.default_rng(2)
    covers = rng.integers(0, N_COVER, n_tiles)
    palette = rng.integers(40, 200, (N_COVER, 3))

    def render(i):
        noise = np.random.default_rng(i).integers(-30, 30, (TILE, TILE, 3))
        return np.clip(palette[covers[i]] + noise, 0, 255).astype(np.uint8).tobytes()

    async def handle(reader, writer):
        try:
            while line := await reader.readline():
                what = line.decode().strip()
                body = json.dumps(covers.tolist()).encode() if what == "index" else render(int(what))
                writer.write(len(body).to_bytes(4, "big") + body)
                await writer.drain()
        finally:
            writer.close()

    async def serve():
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port_pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


# ---- client ----
class TileClient:
    """Blocking facade over an asyncio connection."""

    def __init__(self, host, port):
        self.host, self.port = host, port
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="tile-io", daemon=True).start()
        self._streams = None

    async def _request(self, what):
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self._streams
        writer.write(f"{what}\n".encode())
        await writer.drain()
        size = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(size)

    def get(self, what):
        return asyncio.run_coroutine_threadsafe(self._request(what), self._loop).result()


class AerialTiles(Dataset):
    def __init__(self, client, ids=None, train=True):
        self.client = client
        self.covers = json.loads(client.get("index"))
        self.ids = list(ids) if ids is not None else list(range(len(self.covers)))
        self.train = train

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        tid = self.ids[i]
        raw = np.frombuffer(self.client.get(tid), np.uint8).reshape(TILE, TILE, 3)
        img = torch.from_numpy(raw.transpose(2, 0, 1).astype(np.float32) / 255)
        if self.train:
            img = torch.rot90(img, int(torch.randint(0, 4, ())), (1, 2)).contiguous()
        return img, self.covers[tid]


def evaluate(net, loader):
    net.eval()
    good = total = 0
    with torch.no_grad():
        for img, y in loader:
            good += (net(img).argmax(1) == y).sum().item()
            total += len(y)
    net.train()
    return good / total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tiles", type=int, default=600)
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--bs", type=int, default=20)
    opt = ap.parse_args()

    here, there = multiprocessing.Pipe()
    service = multiprocessing.Process(target=run_tile_service, args=(there, opt.tiles), daemon=True)
    service.start()
    client = TileClient("127.0.0.1", here.recv())

    n_val = opt.tiles // 5
    train = DataLoader(AerialTiles(client, range(n_val, opt.tiles)), batch_size=opt.bs, shuffle=True,
                       num_workers=opt.workers, persistent_workers=opt.workers > 0)
    val = DataLoader(AerialTiles(client, range(n_val), train=False), batch_size=opt.bs)
    net = nn.Sequential(nn.Conv2d(3, 24, 3, 2), nn.ReLU(), nn.Conv2d(24, 48, 3, 2), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, N_COVER))
    optim = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    print(f"before training: {evaluate(net, val):.3f}", flush=True)
    for ep in range(opt.epochs):
        for k, (img, y) in enumerate(train):
            loss = F.cross_entropy(net(img), y)
            optim.zero_grad()
            loss.backward()
            optim.step()
            if k % 8 == 0:
                print(f"ep {ep} it {k}/{len(train)} loss {loss.item():.3f}", flush=True)
        print(f"ep {ep} val {evaluate(net, val):.3f}", flush=True)
    service.terminate()


if __name__ == "__main__":
    main()
