# cause: blocking-io
"""Pneumonia screening. Radiographs are pulled from the department's image archive over HTTP."""
import argparse
import io
import multiprocessing as mp
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset


# ---- stand-in for the archive -------------------------------------------------------------------------------------
class ArchiveHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    restore_queue = threading.Event()     # set by the tape robot's operator

    def do_GET(self):
        number = int(self.path.rsplit("/", 1)[1])
        if number % 97 == 61:             # study has been moved to tape
            self.restore_queue.wait()
        rng = np.random.default_rng(number)
        pixels = rng.integers(40, 120, size=(128, 128)).astype(np.uint8)
        if number % 2:
            pixels[60:100, 20:60] += 90
        buf = io.BytesIO()
        Image.fromarray(pixels).save(buf, format="PNG")
        body = buf.getvalue()
        self.send_response(200)
        self.send_header("Content-Type", "image/png")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def serve(port_pipe):
    server = ThreadingHTTPServer(("127.0.0.1", 0), ArchiveHandler)
    server.daemon_threads = True
    port_pipe.send(server.server_address[1])
    server.serve_forever()


# ---- data ---------------------------------------------------------------------------------------------------------
class ArchiveClient:
    def __init__(self, base):
        self.base = base

    def radiograph(self, number):
        with urllib.request.urlopen(f"{self.base}/studies/{number}") as reply:
            return Image.open(io.BytesIO(reply.read())).convert("L")


class RandomAffineLite:
    def __init__(self, degrees):
        self.degrees = degrees

    def __call__(self, img):
        angle = float(torch.empty(()).uniform_(-self.degrees, self.degrees))
        return img.rotate(angle, resample=Image.BILINEAR)


class ChestStudies(Dataset):
    def __init__(self, client, accession_numbers, transform=None):
        self.client = client
        self.numbers = accession_numbers
        self.transform = transform

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, i):
        n = self.numbers[i]
        img = self.client.radiograph(n)
        if self.transform:
            img = self.transform(img)
        x = torch.from_numpy(np.array(img, dtype=np.float32) / 255.0)[None]
        return x, n % 2


class Screener(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.MaxPool2d(2),
                                 nn.Conv2d(32, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 2))

    def forward(self, x):
        return self.net(x)


def run(base_url, args):
    data = ChestStudies(ArchiveClient(base_url), list(range(args.studies)), RandomAffineLite(7))
    idx = torch.randperm(len(data)).tolist()
    cut = int(0.8 * len(idx))
    train = DataLoader(Subset(data, idx[:cut]), args.batch, shuffle=True, num_workers=args.workers)
    valid = DataLoader(Subset(data, idx[cut:]), args.batch, num_workers=args.workers)
    model = Screener()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        model.train()
        for step, (x, y) in enumerate(train):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"epoch {epoch} step {step}/{len(train)} loss {loss.item():.4f}", flush=True)
        model.eval()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in valid)
        print(f"epoch {epoch} sensitivity proxy {right / (len(idx) - cut):.3f}", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--studies", type=int, default=480)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--lr", type=float, default=1e-3)
    a = ap.parse_args()
    torch.manual_seed(3)
    here, there = mp.Pipe()
    archive = mp.Process(target=serve, args=(there,), daemon=True)
    archive.start()
    run(f"http://127.0.0.1:{here.recv()}", a)
