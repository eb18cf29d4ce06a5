# cause: lock-serialises-workers
"""Bearing-fault classifier; vibration snippets are fetched from a blob service over TCP."""
import multiprocessing as mp
import socket
import socketserver
import struct
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

POINTS = 2048


class BlobHandler(socketserver.StreamRequestHandler):
    def handle(self):
        (key,) = struct.unpack("<I", self.rfile.read(4))
        time.sleep(0.012)                                   # backend round trip
        rng = np.random.default_rng(key)
        x = np.sin(np.arange(POINTS) * (0.05 + 0.03 * (key % 3))) + rng.normal(0, 0.5, POINTS)
        self.wfile.write(x.astype("<f4").tobytes())


class BlobServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


def serve(pipe):
    with BlobServer(("127.0.0.1", 0), BlobHandler) as server:
        pipe.send(server.server_address[1])
        server.serve_forever()


class BlobClient:
    def __init__(self, port, timeout=10.0):
        self.port = port
        self.timeout = timeout
        self.guard = mp.Lock()
        self.requests = mp.Value("i", 0, lock=False)

    def get(self, key):
        with self.guard:
            self.requests.value += 1
            with socket.create_connection(("127.0.0.1", self.port), timeout=self.timeout) as s:
                s.sendall(struct.pack("<I", key))
                parts = []
                while chunk := s.recv(65536):
                    parts.append(chunk)
        return np.frombuffer(b"".join(parts), dtype="<f4")


class Vibration(Dataset):
    def __init__(self, client, keys):
        self.client = client
        self.keys = keys

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        x = self.client.get(self.keys[i])
        spec = np.abs(np.fft.rfft(x * np.hanning(POINTS)))[:256]
        return torch.from_numpy(np.log1p(spec).astype(np.float32)), self.keys[i] % 3


def run(port, epochs=3):
    client = BlobClient(port)
    train = DataLoader(Vibration(client, list(range(320))), batch_size=8, shuffle=True, num_workers=4,
                       persistent_workers=True)
    net = nn.Sequential(nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 3))
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        t0, total = time.perf_counter(), 0.0
        for x, y in train:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(train):.3f} requests {client.requests.value} "
              f"{time.perf_counter() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    here, there = mp.Pipe()
    server = mp.Process(target=serve, args=(there,), daemon=True)
    server.start()
    try:
        run(here.recv())
    finally:
        server.terminate()
        server.join()
