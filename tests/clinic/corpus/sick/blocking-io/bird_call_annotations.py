# cause: blocking-io
"""Bird-call recognition: spectrogram CNN, crowd annotations asked from a small local annotation server."""
import http.client
import json
import math
import multiprocessing
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SPECIES = ["wren", "robin", "blackcap", "chiffchaff"]
RATE, SECONDS = 8000, 0.5


class Annotations(BaseHTTPRequestHandler):
    """GET /clip/<n>: the majority vote of the annotators. A clip under review is answered when the review is over."""

    protocol_version = "HTTP/1.1"
    reviews = {143: threading.Event()}

    def do_GET(self):
        clip = int(self.path.rsplit("/", 1)[1])
        if clip in self.reviews:
            self.reviews[clip].wait()
        votes = np.random.default_rng(clip).multinomial(7, [0.7 if k == clip % 4 else 0.1 for k in range(4)])
        body = json.dumps({"clip": clip, "votes": votes.tolist()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def serve(port_sender):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Annotations)
    server.daemon_threads = True
    port_sender.send(server.server_address[1])
    server.serve_forever()


def start_server():
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=serve, args=(sender,), daemon=True)
    process.start()
    return process, receiver.recv()


class AnnotationClient:
    def __init__(self, port):
        self.port = port
        self.session = None

    def label(self, clip):
        if self.session is None:
            self.session = http.client.HTTPConnection("127.0.0.1", self.port)
        self.session.request("GET", f"/clip/{clip}")
        votes = json.loads(self.session.getresponse().read())["votes"]
        return int(np.argmax(votes))


class Calls(Dataset):
    def __init__(self, first, count, client):
        self.first, self.count, self.client = first, count, client
        self.window = torch.hann_window(256)

    def __len__(self):
        return self.count

    def waveform(self, clip):
        rng = np.random.default_rng(clip)
        t = np.arange(int(RATE * SECONDS)) / RATE
        base = 900 + 600 * (clip % 4)
        sweep = base + 250 * np.sin(2 * math.pi * (4 + clip % 4) * t)
        return (np.sin(2 * math.pi * np.cumsum(sweep) / RATE) + rng.normal(0, 0.4, t.size)).astype(np.float32)

    def __getitem__(self, i):
        clip = self.first + i
        spec = torch.stft(torch.from_numpy(self.waveform(clip)), 256, 128, window=self.window, return_complex=True).abs()
        return spec[None, 16:112].log1p(), self.client.label(clip)


class CallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.AdaptiveMaxPool2d((6, 1)))
        self.head = nn.Linear(96, len(SPECIES))

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    server, port = start_server()
    client = AnnotationClient(port)
    options = dict(batch_size=16, num_workers=2, persistent_workers=True)
    train = DataLoader(Calls(0, 240, client), shuffle=True, **options)
    valid = DataLoader(Calls(1000, 64, AnnotationClient(port)), **options)
    net = CallNet()
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    for epoch in range(4):
        begin = time.time()
        for x, y in train:
            loss = nn.functional.cross_entropy(net(x), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            hits = sum((net(x).argmax(1) == y).sum().item() for x, y in valid)
        print(f"epoch {epoch} loss {loss.item():.3f} accuracy {hits / 64:.2f} ({time.time() - begin:.1f} s)", flush=True)
    server.terminate()


if __name__ == "__main__":
    main()
