"""Produce grading from pictures kept behind a small HTTP image service."""
import http.client
import http.server
import io
import multiprocessing
import os

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ImageHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    pictures = []

    def do_GET(self):
        body = self.pictures[int(self.path.rsplit("/", 1)[1]) % len(self.pictures)]
        self.send_response(200)
        self.send_header("Content-Type", "image/jpeg")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def grade_of(i):
    return (i * 7 + i // 5) % 3


def serve(count, pipe):
    rng = np.random.default_rng(0)
    for i in range(count):
        base = np.full((8, 8, 3), (60 + 60 * grade_of(i), 140, 40), np.uint8)
        base += rng.integers(0, 50, base.shape, dtype=np.uint8)
        buf = io.BytesIO()
        Image.fromarray(base).resize((320, 320), Image.BICUBIC).save(buf, "JPEG", quality=88)
        ImageHandler.pictures.append(buf.getvalue())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ImageHandler)
    server.daemon_threads = True
    pipe.send(server.server_address[1])
    server.serve_forever()


class ImageClient:
    """Keep-alive connection, made on first use in whichever process uses it."""

    def __init__(self, port):
        self.port = port
        self._conn, self._owner = None, None

    def get(self, i):
        if self._owner != os.getpid():
            self._conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            self._owner = os.getpid()
        self._conn.request("GET", f"/produce/{i}")
        return self._conn.getresponse().read()


class Produce(Dataset):
    def __init__(self, client, ids):
        self.client, self.ids = client, ids

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, k):
        i = self.ids[k]
        im = Image.open(io.BytesIO(self.client.get(i))).convert("RGB")
        im = im.filter(ImageFilter.GaussianBlur(1.0)).resize((72, 72), Image.LANCZOS)
        x = torch.from_numpy(np.array(im)).permute(2, 0, 1).float().div_(255)
        return x, grade_of(i)


def main():
    here, there = multiprocessing.Pipe()
    service = multiprocessing.Process(target=serve, args=(600, there), daemon=True)
    service.start()
    client = ImageClient(here.recv())

    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(Produce(client, list(range(500))), batch_size=20, shuffle=True, num_workers=2,
                       persistent_workers=True)
    val = DataLoader(Produce(client, list(range(500, 600))), batch_size=20, num_workers=2, persistent_workers=True)
    net = nn.Sequential(nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 24, 3, stride=2), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 3))
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for epoch in range(3):
        for x, y in train:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            acc = sum((net(x).argmax(1) == y).sum().item() for x, y in val) / len(val.dataset)
        print(f"epoch {epoch}: loss {loss.item():.3f} val {acc:.3f}", flush=True)
    service.terminate()
    service.join()


if __name__ == "__main__":
    main()
