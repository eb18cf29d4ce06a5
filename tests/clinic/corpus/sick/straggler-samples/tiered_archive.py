# cause: straggler-samples
# also: storage-bound
"""Seismic event detector, trained in chronological order from a tiered archive (hot and cold shelves)."""
import multiprocessing as mp
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

TRACE = 1500


class Shelf(BaseHTTPRequestHandler):
    hot_s, cold_s = 0.006, 1.4

    def do_GET(self):
        day = int(self.path.rsplit("/", 1)[1])
        time.sleep(self.cold_s if day % 104 == 61 else self.hot_s)
        rng = np.random.default_rng(day)
        trace = rng.normal(0, 1, TRACE)
        if day % 2:
            trace[600:900] += 2 * np.sin(np.arange(300) / 4)
        body = trace.astype(np.float32).tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def archive(pipe):
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Shelf)
    pipe.send(f"http://127.0.0.1:{httpd.server_port}/trace")
    httpd.serve_forever()


class Traces(Dataset):
    def __init__(self, base, days):
        self.base = base
        self.days = days

    def __len__(self):
        return len(self.days)

    def __getitem__(self, i):
        day = self.days[i]
        with urllib.request.urlopen(f"{self.base}/{day}", timeout=20) as r:
            trace = np.frombuffer(r.read(), dtype=np.float32).copy()
        trace -= trace.mean()
        return torch.from_numpy(trace / (trace.std() + 1e-6))[None], float(day % 2)


class Chronological(Sampler):
    def __init__(self, dataset):
        self.order = sorted(range(len(dataset)), key=lambda i: dataset.days[i])

    def __iter__(self):
        return iter(self.order)

    def __len__(self):
        return len(self.order)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, 6, 25, 5), nn.ReLU(), nn.Conv1d(6, 8, 9, 3), nn.ReLU(),
                                 nn.AdaptiveMaxPool1d(4), nn.Flatten(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def main(base):
    data = Traces(base, list(range(520)))
    loader = DataLoader(data, batch_size=8, sampler=Chronological(data), num_workers=4, persistent_workers=True)
    model = Detector()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        start, losses = time.time(), []
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        print(f"pass {epoch}: loss {np.mean(losses):.3f} in {time.time() - start:.1f}s", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    recv, send = mp.Pipe(False)
    proc = mp.Process(target=archive, args=(send,), daemon=True)
    proc.start()
    try:
        main(recv.recv())
    finally:
        proc.terminate()
        proc.join()
