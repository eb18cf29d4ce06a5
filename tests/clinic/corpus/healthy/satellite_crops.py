"""Crop type from satellite patches that live behind the lab's patch service."""
import argparse
import asyncio
import json
import multiprocessing
import os
import threading
import zlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIDE = 72
CROPS = ["wheat", "maize", "rape", "beet", "meadow"]


# ---- the patch service (on the cluster this is another machine) ----
def run_patch_service(port_pipe, n):
    rng = np.random.default_rng(2)
    crops = rng.integers(0, len(CROPS), n)
    tint = rng.integers(60, 190, (len(CROPS), 4))
    bodies = []
    for i in range(n):
        noise = np.random.default_rng(i).integers(-40, 40, (SIDE, SIDE, 4))
        bodies.append(zlib.compress(np.clip(tint[crops[i]] + noise, 0, 255).astype(np.uint8).tobytes(), 1))
    index = json.dumps(crops.tolist()).encode()

    async def handle(reader, writer):
        try:
            while line := await reader.readline():
                what = line.decode().strip()
                body = index if what == "index" else bodies[int(what)]
                writer.write(len(body).to_bytes(4, "big") + body)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def serve():
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port_pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


# ---- client ----
class PatchClient:
    """Blocking facade over an asyncio connection; every process gets a loop and a connection of its own."""

    def __init__(self, host, port):
        self.host, self.port = host, port
        self._pid = None

    def _ensure_started(self):
        if self._pid == os.getpid():
            return
        self._loop = asyncio.new_event_loop()
        self._streams = None
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._loop.run_forever, name="patch-io", daemon=True)
        self._thread.start()

    def close(self):
        """Ends loop, thread and connection; the next get() starts afresh."""
        if self._pid != os.getpid():
            return
        if self._streams is not None:
            self._loop.call_soon_threadsafe(self._streams[1].close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()
        self._pid = self._loop = self._streams = self._thread = None

    async def _request(self, wanted):
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self._streams
        writer.write("".join(f"{w}\n" for w in wanted).encode())
        await writer.drain()
        return [await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")) for _ in wanted]

    def get(self, *wanted):
        self._ensure_started()
        return asyncio.run_coroutine_threadsafe(self._request(wanted), self._loop).result()


class SatellitePatches(Dataset):
    def __init__(self, client, ids, train=True):
        self.client, self.ids, self.train = client, list(ids), train
        self.crops = json.loads(client.get("index")[0])
        client.close()

    def __len__(self):
        return len(self.ids)

    def __getitems__(self, positions):
        ids = [self.ids[p] for p in positions]
        return [self._prepare(raw, i) for raw, i in zip(self.client.get(*ids), ids)]

    def _prepare(self, raw, i):
        px = np.frombuffer(zlib.decompress(raw), np.uint8).reshape(SIDE, SIDE, 4)
        img = torch.from_numpy(px.transpose(2, 0, 1).astype(np.float32) / 255)
        if self.train:
            img = torch.rot90(img, int(torch.randint(0, 4, ())), (1, 2)).contiguous()
        ndvi = (img[3] - img[0]) / (img[3] + img[0] + 1e-3)
        return torch.cat([img, ndvi[None]]), self.crops[i]


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
    ap.add_argument("--patches", type=int, default=500)
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--workers", type=int, default=1)
    ap.add_argument("--bs", type=int, default=20)
    opt = ap.parse_args()
    torch.set_num_threads(1)

    here, there = multiprocessing.Pipe()
    service = multiprocessing.Process(target=run_patch_service, args=(there, opt.patches), daemon=True)
    service.start()
    client = PatchClient("127.0.0.1", here.recv())

    n_val = opt.patches // 5
    train = DataLoader(SatellitePatches(client, range(n_val, opt.patches)), batch_size=opt.bs, shuffle=True,
                       num_workers=opt.workers, persistent_workers=opt.workers > 0)
    val = DataLoader(SatellitePatches(client, range(n_val), train=False), batch_size=opt.bs,
                     num_workers=opt.workers, persistent_workers=opt.workers > 0)
    net = nn.Sequential(nn.Conv2d(5, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 2),
                        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, len(CROPS)))
    optim = torch.optim.Adam(net.parameters(), lr=2e-3)
    print(f"{len(train.dataset)} patches to learn from, {len(val.dataset)} to test on", flush=True)
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
