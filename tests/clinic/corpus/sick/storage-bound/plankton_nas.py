# cause: storage-bound
"""Plankton images from the ship's NAS, reached through one slow satellite link."""
import contextlib
import multiprocessing as mp
import os
import socket
import socketserver
import struct
import threading
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SIDE = 128


class Link:
    """All connections together get this many bytes per second."""

    def __init__(self, rate):
        self.rate, self.lock, self.free_at = rate, threading.Lock(), 0.0

    def pay(self, n):
        with self.lock:
            now = time.monotonic()
            self.free_at = max(now, self.free_at) + n / self.rate
            due = self.free_at
        time.sleep(max(0.0, due - now))


class NasHandler(socketserver.BaseRequestHandler):
    link = Link(6e6)

    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while head := self.request.recv(4):
            key, = struct.unpack("<I", head)
            blob = np.random.default_rng(key).integers(0, 256, SIDE * SIDE * 3, dtype=np.uint8).tobytes()
            for part in range(0, len(blob), 16384):
                piece = blob[part: part + 16384]
                self.link.pay(len(piece))
                self.request.sendall(piece)


class NasServer(socketserver.ThreadingTCPServer):
    daemon_threads = True


def nas_main(conn):
    with NasServer(("127.0.0.1", 0), NasHandler) as srv:
        conn.send(srv.server_address)
        srv.serve_forever()


@contextlib.contextmanager
def nas():
    a, b = mp.Pipe()
    proc = mp.Process(target=nas_main, args=(b,), daemon=True)
    proc.start()
    try:
        yield a.recv()
    finally:
        proc.terminate()
        proc.join()


class NasImages(Dataset):
    def __init__(self, address, keys):
        self.address, self.keys = address, keys
        self._sock = {}

    def __len__(self):
        return len(self.keys)

    def read(self, key):
        sock = self._sock.get(os.getpid())
        if sock is None:
            sock = self._sock[os.getpid()] = socket.create_connection(self.address, timeout=20)
        sock.sendall(struct.pack("<I", key))
        buf = bytearray()
        while len(buf) < SIDE * SIDE * 3:
            buf += sock.recv(65536)
        return buf

    def __getitem__(self, i):
        key = self.keys[i]
        img = torch.frombuffer(self.read(key), dtype=torch.uint8).view(SIDE, SIDE, 3)
        return img.permute(2, 0, 1)[:, ::2, ::2].float().div(255), key % 7


def train(address):
    loader = DataLoader(NasImages(address, list(range(400))), 16, shuffle=True, num_workers=4, persistent_workers=True)
    net = nn.Sequential(nn.Conv2d(3, 8, 5, stride=3), nn.ReLU(), nn.AdaptiveMaxPool2d(4), nn.Flatten(), nn.Linear(128, 7))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(3):
        t0, n = time.time(), 0
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            n += len(y)
        print(f"epoch {epoch}: loss {loss.item():.3f}, {n / (time.time() - t0):.0f} images/s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with nas() as address:
        train(address)
