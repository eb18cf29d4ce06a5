# cause: storage-bound
"""Rock typing from borehole scans kept on an archive node."""
import argparse
import atexit
import multiprocessing as mp
import os
import shutil
import socket
import struct
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CHUNK = 64 * 1024


def archive_node(address, folder, rate, ready):
    """Serves whole files over a local socket, `rate` bytes per second in all."""
    import selectors
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen(64)
    ready.set()
    pick = selectors.DefaultSelector()
    pick.register(server, selectors.EVENT_READ)
    waiting = []
    while True:
        for key, _ in pick.select(timeout=0 if waiting else 0.2):
            if key.fileobj is server:
                pick.register(server.accept()[0], selectors.EVENT_READ)
            else:
                client = key.fileobj
                pick.unregister(client)
                name = client.recv(256).decode()
                with open(os.path.join(folder, name), "rb") as f:
                    body = f.read()
                waiting.append([client, memoryview(struct.pack("<q", len(body)) + body)])
        for job in list(waiting):
            client, rest = job
            part, job[1] = rest[:CHUNK], rest[CHUNK:]
            time.sleep(len(part) / rate)
            client.sendall(part)
            if not len(job[1]):
                client.close()
                waiting.remove(job)


class Archive:
    def __init__(self, address):
        self.address = address

    def read(self, name):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(30)
            s.connect(self.address)
            s.sendall(name.encode())
            with s.makefile("rb") as f:
                (size,) = struct.unpack("<q", f.read(8))
                return f.read(size)


class Boreholes(Dataset):
    def __init__(self, archive, names, side):
        self.archive, self.names, self.side = archive, names, side

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        scan = np.frombuffer(self.archive.read(self.names[i]), dtype=np.uint8).reshape(self.side, self.side)
        small = scan.reshape(32, self.side // 32, 32, self.side // 32)[:, ::4, :, ::4].mean((1, 3)) / 255
        return torch.from_numpy(small.astype(np.float32))[None], int(self.names[i][-1])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--scans", type=int, default=192)
    p.add_argument("--side", type=int, default=960)
    p.add_argument("--rate", type=float, default=30e6)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="bore")
    atexit.register(shutil.rmtree, folder, True)
    rng, names = np.random.default_rng(1), []
    for i in range(args.scans):
        names.append(f"hole{i:04d}-{i % 3}")
        texture = rng.integers(0, 80 + 80 * (i % 3), (args.side, args.side), dtype=np.uint8)
        texture.tofile(os.path.join(folder, names[-1]))
    address, ready = os.path.join(folder, "node.sock"), mp.Event()
    node = mp.Process(target=archive_node, args=(address, folder, args.rate, ready), daemon=True)
    node.start()
    ready.wait()
    loader = DataLoader(Boreholes(Archive(address), names, args.side), 8, shuffle=True, num_workers=args.workers)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3))
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    began = time.time()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 6 == 0:
            print(f"step {step} loss {loss.item():.3f} {time.time() - began:.1f}s", flush=True)
    print(f"all scans seen once in {time.time() - began:.1f}s")
    node.terminate()
    node.join()


if __name__ == "__main__":
    main()
