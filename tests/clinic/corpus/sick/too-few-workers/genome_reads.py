# cause: too-few-workers
# also: storage-bound, not-fed-fast-enough
"""Promoter detection; sequence windows are requested from a local annotation service."""
import os
import socket
import socketserver
import struct
import threading
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BASES = np.frombuffer(b"ACGT", np.uint8)


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        while head := self.request.recv(8):
            start, n = struct.unpack("<II", head)
            time.sleep(0.013)
            rng = np.random.default_rng(start)
            self.request.sendall(BASES[rng.integers(0, 4, n)].tobytes())


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


def start_service():
    """Runs the service in a process of its own; returns (pid, port)."""
    server = Server(("127.0.0.1", 0), Handler)
    port = server.server_address[1]
    pid = os.fork()
    if pid == 0:
        parent = os.getppid()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(0)
    server.socket.close()
    return pid, port


@dataclass
class Windows(Dataset):
    port: int
    n: int
    width: int = 200
    conn: object = None

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if self.conn is None:
            self.conn = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        self.conn.sendall(struct.pack("<II", i, self.width))
        buf = b""
        while len(buf) < self.width:
            buf += self.conn.recv(self.width - len(buf))
        seq = np.frombuffer(buf, np.uint8)
        onehot = (seq[None] == BASES[:, None]).astype(np.float32)
        return torch.from_numpy(onehot), float(onehot[1:3].mean() > 0.5)


def main():
    torch.set_num_threads(1)
    pid, port = start_service()
    try:
        loader = DataLoader(Windows(port, 400), 16, shuffle=True, num_workers=1)
        net = nn.Sequential(nn.Conv1d(4, 16, 9), nn.ReLU(), nn.AdaptiveMaxPool1d(4), nn.Flatten(), nn.Linear(64, 1), nn.Flatten(0))
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        t = time.time()
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(net(x), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 5 == 4:
                print("step %d loss %.3f %.0f windows/s" % (step + 1, loss.item(), 16 * (step + 1) / (time.time() - t)), flush=True)
    finally:
        os.kill(pid, 15)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
