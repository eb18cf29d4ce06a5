"""Embedding regression; attributes come from a local service through a client with time-out and retry."""
import json
import socket
import socketserver
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            key = int(line)
            time.sleep(0.002)
            values = np.random.default_rng(key).normal(size=96).round(3).tolist()
            self.wfile.write(json.dumps(values).encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


class Client:
    def __init__(self, address, timeout=5.0, tries=3):
        self.address, self.timeout, self.tries = address, timeout, tries
        self._stream = None

    def _connect(self):
        sock = socket.create_connection(self.address, timeout=self.timeout)
        self._stream = sock.makefile("rwb")

    def get(self, key):
        for attempt in range(self.tries):
            try:
                if self._stream is None:
                    self._connect()
                self._stream.write(b"%d\n" % key)
                self._stream.flush()
                return json.loads(self._stream.readline())
            except (OSError, ValueError):
                self._stream = None
        raise RuntimeError(f"no answer for {key} after {self.tries} tries")


class Attributes(Dataset):
    def __init__(self, n, client):
        self.n, self.client = n, client

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = torch.tensor(self.client.get(i))
        return x, (x ** 2).mean()


def main(epochs=2):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        loader = DataLoader(Attributes(240, Client(server.server_address)), batch_size=10, shuffle=True, num_workers=2,
                            persistent_workers=True)
        model = nn.Sequential(nn.Linear(96, 1280), nn.ReLU(), nn.Linear(1280, 1280), nn.ReLU(), nn.Linear(1280, 1))
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(epochs):
            total = 0.0
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x).squeeze(1), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            print(f"epoch {epoch} mse {total / len(loader):.4f}", flush=True)
        del loader
        server.shutdown()


if __name__ == "__main__":
    main()
