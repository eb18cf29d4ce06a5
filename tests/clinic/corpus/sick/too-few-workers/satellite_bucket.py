# cause: too-few-workers
# also: storage-bound
"""Land-cover training from an object store; settings come from a YAML block."""
import io
import multiprocessing as mp
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, Dataset

SETTINGS = yaml.safe_load("""
data: {chips: 200, size: 24, bands: 4, classes: 3}
loader: {batch_size: 10, num_workers: 1, prefetch_factor: 2, persistent_workers: true, shuffle: true}
optim: {lr: 0.003, weight_decay: 0.0001}
epochs: 2
""")
LATENCY = 0.028


class Bucket(BaseHTTPRequestHandler):
    def do_GET(self):
        key = int(self.path.strip("/").split(".")[0])
        time.sleep(LATENCY)
        d = SETTINGS["data"]
        rng = np.random.default_rng(key)
        chip = rng.normal(key % d["classes"], 1.0, (d["bands"], d["size"], d["size"])).astype(np.float32)
        buf = io.BytesIO()
        np.save(buf, chip)
        self.send_response(200)
        self.send_header("Content-Length", str(buf.tell()))
        self.end_headers()
        self.wfile.write(buf.getvalue())

    def log_message(self, *args):
        pass


def host(conn):
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    conn.send(httpd.server_port)
    httpd.serve_forever()


class Chips(Dataset):
    def __init__(self, port, n, classes):
        self.url = f"http://127.0.0.1:{port}"
        self.n = n
        self.classes = classes

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        with urllib.request.urlopen(f"{self.url}/{i}.npy", timeout=15) as reply:
            chip = np.load(io.BytesIO(reply.read()))
        ndvi = (chip[3] - chip[0]) / (np.abs(chip[3]) + np.abs(chip[0]) + 1e-3)
        return torch.from_numpy(np.concatenate([chip, ndvi[None]])), i % self.classes


def build_model(cfg):
    return nn.Sequential(
        nn.Conv2d(cfg["bands"] + 1, 12, 3, stride=2), nn.ReLU(),
        nn.Conv2d(12, 16, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.LazyLinear(cfg["classes"]))


def fit(port):
    data = SETTINGS["data"]
    loader = DataLoader(Chips(port, data["chips"], data["classes"]), **SETTINGS["loader"])
    model = build_model(data)
    model(torch.zeros(1, data["bands"] + 1, data["size"], data["size"]))
    opt = torch.optim.AdamW(model.parameters(), **SETTINGS["optim"])
    for epoch in range(SETTINGS["epochs"]):
        t0, hits = time.time(), 0
        for x, y in loader:
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            hits += (out.argmax(1) == y).sum().item()
        print(f"epoch {epoch} acc {hits / data['chips']:.3f} ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    ours, theirs = mp.Pipe()
    bucket = mp.Process(target=host, args=(theirs,), daemon=True)
    bucket.start()
    try:
        fit(ours.recv())
    finally:
        bucket.terminate()
        bucket.join()
