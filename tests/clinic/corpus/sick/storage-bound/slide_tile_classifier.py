# cause: storage-bound
# also: too-few-workers
"""Classifies tiles of pathology slides that live in the department's tile store (a small TCP service)."""
import multiprocessing
import os
import socket
import struct
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

CONFIG = {"tiles": 640, "side": 64, "batch": 16, "epochs": 3, "workers": 2, "lr": 3e-3, "answer_after": 0.004}
ASK = struct.Struct("<QI")
HEAD = struct.Struct("<HHI")


def build_blob(count, side, seed):
    """header (side, label, offset of the pixels) per tile, then per tile four stripes of pixels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    heads, body = [], []
    at = HEAD.size * count
    for label in labels:
        base = rng.normal(150 - 25 * label, 30, (side // 8, side // 8, 3)).clip(0, 255)
        pixels = np.kron(base, np.ones((8, 8, 1))).astype(np.uint8)
        heads.append(HEAD.pack(side, int(label), at))
        body.append(pixels.tobytes())
        at += pixels.nbytes
    return b"".join(heads) + b"".join(body)


def serve_store(listener, blob, answer_after):
    def watch(parent):
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(0)

    def talk(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            while True:
                ask = connection.recv(ASK.size, socket.MSG_WAITALL)
                if len(ask) < ASK.size:
                    return
                offset, size = ASK.unpack(ask)
                time.sleep(answer_after)  # disks, network
                connection.sendall(blob[offset:offset + size])

    threading.Thread(target=watch, args=(os.getppid(),), daemon=True).start()
    while True:
        threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()


def start_store(config):
    listener = socket.create_server(("127.0.0.1", 0))
    blob = build_blob(config["tiles"], config["side"], seed=8)
    store = multiprocessing.Process(target=serve_store, args=(listener, blob, config["answer_after"]), daemon=True)
    store.start()
    address = listener.getsockname()
    listener.close()
    return store, address


class StoreMixin:
    """Byte ranges of the store; each process has its own connection."""

    address = None
    _connection = (None, None)

    def fetch(self, offset, size):
        pid, connection = self._connection
        if pid != os.getpid():
            connection = socket.create_connection(self.address, timeout=20)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(None)
            self._connection = (os.getpid(), connection)
        connection.sendall(ASK.pack(offset, size))
        return connection.recv(size, socket.MSG_WAITALL)


class SlideTiles(StoreMixin, Dataset):
    def __init__(self, address, count):
        self.address, self.count = address, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        side, label, offset = HEAD.unpack(self.fetch(index * HEAD.size, HEAD.size))
        stripe = side * side * 3 // 4
        raw = b"".join(self.fetch(offset + k * stripe, stripe) for k in range(4))
        tile = np.frombuffer(raw, dtype=np.uint8).reshape(side, side, 3).astype(np.float32) / 255
        tile = (tile - tile.mean((0, 1))) / (tile.std((0, 1)) + 0.1) + tile.mean()
        if np.random.rand() < 0.5:
            tile = tile[::-1]
        return torch.from_numpy(tile.transpose(2, 0, 1).copy()), label


class TileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 5, stride=3), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(64, 2)

    def forward(self, x):
        return self.head(self.features(x))


def main(config=CONFIG):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    store, address = start_store(config)
    tiles = SlideTiles(address, config["tiles"])
    held_out = config["tiles"] // 10
    train, test = random_split(tiles, [config["tiles"] - held_out, held_out])
    options = dict(batch_size=config["batch"], num_workers=config["workers"], persistent_workers=True)
    train_loader, test_loader = DataLoader(train, shuffle=True, **options), DataLoader(test, **options)
    model = TileNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    for epoch in range(config["epochs"]):
        start = time.perf_counter()
        for images, labels in train_loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        rate = len(train) / (time.perf_counter() - start)
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in test_loader)
        print(f"epoch {epoch}: loss {loss.item():.3f}, test {right / len(test):.2f}, {rate:.0f} tiles/s", flush=True)
    store.terminate()
    store.join()


if __name__ == "__main__":
    main()
