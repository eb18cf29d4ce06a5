# cause: blocking-io
"""Roof segmentation on orthophoto tiles fetched from the in-house tile service."""
import multiprocessing as mp
import socket
import struct
import threading

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TILE = 64


def tile_service(port_pipe, archived):
    """Stand-in for the tile service: hot tiles are answered at once, archived ones after a recall job."""
    recall_queue = []

    def serve(conn):
        while True:
            head = conn.recv(4)
            if len(head) < 4:
                return
            (key,) = struct.unpack("!I", head)
            if key in archived:
                recall_queue.append((conn, key))
                continue
            rng = np.random.default_rng(key)
            img = rng.integers(0, 256, (TILE, TILE, 3), dtype=np.uint8)
            conn.sendall(img.tobytes())

    srv = socket.create_server(("127.0.0.1", 0))
    port_pipe.send(srv.getsockname()[1])
    while True:
        c, _ = srv.accept()
        threading.Thread(target=serve, args=(c,), daemon=True).start()


class TileClient:
    def __init__(self, port):
        self.port, self.sock = port, None

    def get(self, key):
        if self.sock is None:
            self.sock = socket.create_connection(("127.0.0.1", self.port))
        self.sock.sendall(struct.pack("!I", key))
        want, parts = TILE * TILE * 3, []
        while want:
            part = self.sock.recv(min(want, 65536))
            if not part:
                raise ConnectionError("tile service closed the connection")
            parts.append(part)
            want -= len(part)
        return np.frombuffer(b"".join(parts), np.uint8).reshape(TILE, TILE, 3)


class RoofTiles(Dataset):
    def __init__(self, keys, port):
        self.keys, self.client = keys, TileClient(port)

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        rgb = self.client.get(self.keys[i]).astype(np.float32) / 255.0
        for _ in range(8):
            rgb = (rgb + np.roll(rgb, 1, 0) + np.roll(rgb, 1, 1)) / 3
        mask = (rgb[..., 0] > rgb[..., 1]).astype(np.float32)
        return torch.from_numpy(rgb.transpose(2, 0, 1).copy()), torch.from_numpy(mask)


def main():
    torch.manual_seed(0)
    ours, theirs = mp.Pipe()
    server = mp.Process(target=tile_service, args=(theirs, {1733}), daemon=True)
    server.start()
    port = ours.recv()
    try:
        keys = list(range(1000, 2000))
        loader = DataLoader(RoofTiles(keys, port), batch_size=25, shuffle=True, num_workers=2, persistent_workers=True)
        net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))
        opt = torch.optim.SGD(net.parameters(), 0.1)
        for epoch in range(2):
            for step, (x, m) in enumerate(loader):
                loss = nn.functional.binary_cross_entropy_with_logits(net(x).squeeze(1), m)
                opt.zero_grad()
                loss.backward()
                opt.step()
                if step % 10 == 0:
                    print(f"epoch {epoch} step {step}/{len(loader)} loss {loss.item():.4f}", flush=True)
    finally:
        server.terminate()


if __name__ == "__main__":
    main()
