# cause: storage-bound
"""Land-use classifier; map tiles are fetched over HTTP from the team's tile store (a local one is started here)."""
import argparse
import http.server
import multiprocessing as mp
import threading
import time
import urllib.request

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 512


class TileHandler(http.server.BaseHTTPRequestHandler):
    disk = threading.Lock()
    rate = 12e6

    def do_GET(self):
        number = int(self.path.rsplit("/", 1)[1])
        rng = np.random.default_rng(number)
        body = rng.integers(0, 120 + 40 * (number % 3), SIDE * SIDE, dtype=np.uint8).tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for at in range(0, len(body), 1 << 16):
            piece = body[at:at + (1 << 16)]
            with self.disk:  # one spindle
                time.sleep(len(piece) / self.rate)
            self.wfile.write(piece)

    def log_message(self, *args):
        pass


def serve(pipe, rate):
    TileHandler.rate = rate
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), TileHandler)
    server.daemon_threads = True
    pipe.send(server.server_address[1])
    server.serve_forever()


class TileClient:
    def __init__(self, port, timeout=20):
        self.base, self.timeout = f"http://127.0.0.1:{port}/tiles", timeout
        self.opener = None

    def tile(self, number):
        if self.opener is None:
            self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with self.opener.open(f"{self.base}/{number}", timeout=self.timeout) as reply:
            return np.frombuffer(reply.read(), np.uint8).reshape(SIDE, SIDE)


class Tiles(Dataset):
    def __init__(self, client, count):
        self.client, self.count = client, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        tile = self.client.tile(i)
        small = tile[::8, ::8].astype(np.float32) / 255
        return torch.from_numpy(small)[None], i % 3


def train(a, port):
    loader = DataLoader(Tiles(TileClient(port), a.tiles), a.batch, shuffle=True, num_workers=a.workers)
    net = nn.Sequential(nn.Conv2d(1, 8, 5, stride=3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3))
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    began, right = time.time(), 0
    for step, (x, y) in enumerate(loader):
        out = net(x)
        loss = nn.functional.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        right += (out.argmax(1) == y).sum().item()
        if step % 6 == 0:
            print(f"step {step}/{len(loader)} loss {loss.item():.3f} {time.time() - began:.1f}s", flush=True)
    print(f"accuracy {right / a.tiles:.2f} in {time.time() - began:.1f}s")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tiles", type=int, default=240)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--rate", type=float, default=12e6)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    here, there = mp.Pipe()
    store = mp.Process(target=serve, args=(there, a.rate), daemon=True)
    store.start()
    try:
        train(a, here.recv())
    finally:
        store.terminate()
        store.join()


if __name__ == "__main__":
    main()
