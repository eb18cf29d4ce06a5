# cause: client-not-fork-safe
"""Land-cover segmentation; tiles come from the group's tile service through fsspec."""
import argparse
import asyncio
import functools
import http.server
import io
import json
import multiprocessing
import tempfile
import time
from pathlib import Path

import fsspec
import numpy as np
import torch
import torch.nn.functional as F
from fsspec.asyn import AsyncFileSystem
from torch import nn
from torch.utils.data import DataLoader, Dataset


class TileServiceFS(AsyncFileSystem):
    """Read-only client of the tile service (plain HTTP, one request per connection)."""
    protocol = "tiles"

    def __init__(self, host="127.0.0.1", port=8080, **kw):
        super().__init__(**kw)
        self.host, self.port = host, port

    async def _request(self, path):
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(f"GET /{path.lstrip('/')} HTTP/1.0\r\nHost: {self.host}\r\n\r\n".encode())
        await writer.drain()
        raw = await reader.read()
        writer.close()
        head, _, body = raw.partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise FileNotFoundError(path)
        return body

    async def _cat_file(self, path, start=None, end=None, **kw):
        body = await self._request(self._strip_protocol(path))
        return body[start:end]

    async def _ls(self, path, detail=True, **kw):
        names = json.loads(await self._request("index.json"))
        return [{"name": n, "size": None, "type": "file"} for n in names] if detail else names


fsspec.register_implementation("tiles", TileServiceFS, clobber=True)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def serve(root, conn):
    handler = functools.partial(QuietHandler, directory=root)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        conn.send(httpd.server_address[1])
        httpd.serve_forever()


def publish(root, n=240, side=64):
    g = np.random.default_rng(2)
    names = []
    for i in range(n):
        cover = g.integers(0, 5, size=(side // 8, side // 8)).repeat(8, 0).repeat(8, 1)
        bands = cover[None] * g.uniform(0.5, 1.0, size=(4, 1, 1)) + g.normal(0, 0.3, size=(4, side, side))
        np.savez(Path(root) / f"tile_{i:04d}.npz", bands=bands.astype(np.float32), cover=cover.astype(np.int64))
        names.append(f"tile_{i:04d}.npz")
    (Path(root) / "index.json").write_text(json.dumps(names))


class LandCover(Dataset):
    def __init__(self, url, port, split, val_every=6):
        self.fs = fsspec.filesystem("tiles", port=port)
        tiles = sorted(self.fs.ls(url, detail=False))
        keep = (lambda k: k % val_every == 0) if split == "val" else (lambda k: k % val_every != 0)
        self.tiles = [t for k, t in enumerate(tiles) if keep(k)]
        sample = self._read(self.tiles[0])
        self.mean = sample["bands"].mean((1, 2), keepdims=True)
        self.std = sample["bands"].std((1, 2), keepdims=True)

    def _read(self, name):
        with np.load(io.BytesIO(self.fs.cat_file(name))) as z:
            return {k: z[k] for k in z.files}

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, i):
        t = self._read(self.tiles[i])
        return (t["bands"] - self.mean) / self.std, t["cover"]


class TinyUNet(nn.Module):
    def __init__(self, bands=4, classes=5, w=32):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(bands, w, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(w, 2 * w, 3, padding=1), nn.ReLU())
        self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(2 * w, w, 3, padding=1), nn.ReLU(),
                                nn.Conv2d(w, classes, 1))

    def forward(self, x):
        return self.up(self.down(x))


def train(args, port):
    train_set, val_set = (LandCover("tiles://landcover", port, s) for s in ("train", "val"))
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, num_workers=args.num_workers,
                              persistent_workers=args.num_workers > 0)
    val_loader = DataLoader(val_set, args.batch_size, num_workers=args.num_workers)
    net = TinyUNet()
    opt = torch.optim.Adam(net.parameters(), args.lr)
    for epoch in range(args.epochs):
        t0 = time.time()
        net.train()
        for x, y in train_loader:
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        net.eval()
        good = count = 0
        with torch.no_grad():
            for x, y in val_loader:
                good += (net(x).argmax(1) == y).sum().item()
                count += y.numel()
        print(f"epoch {epoch} loss {loss.item():.3f} pixel acc {good / count:.3f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=10)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        publish(root)
        here, there = multiprocessing.Pipe()
        server = multiprocessing.Process(target=serve, args=(root, there), daemon=True)
        server.start()
        try:
            train(args, here.recv())
        finally:
            server.terminate()
