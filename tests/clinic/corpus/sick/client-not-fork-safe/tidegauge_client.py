# cause: client-not-fork-safe
"""Storm surge forecasting: water level records come from the harbour data service (a stand-in runs on loopback)."""
import asyncio
import http.server
import json
import math
import threading

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class HarbourService(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        _, kind, num = self.path.split("/")
        if kind == "stations":
            body = json.dumps({"count": 160, "sampling": "10min"}).encode()
        else:
            rng = np.random.default_rng(int(num))
            t = np.arange(432)
            level = 1.8 * np.sin(t / 74.5 * 2 * math.pi + int(num)) + 0.2 * rng.standard_normal(len(t)).cumsum() / 5
            body = json.dumps({"station": int(num), "level": level.round(3).tolist()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *a):
        pass


class GaugeAPI:
    """Blocking face of an asyncio client, so that notebooks and training code need no await."""

    def __init__(self, host, port, parallel=4):
        self.host, self.port = host, port
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="gauge-io", daemon=True)
        self._thread.start()
        self.slots = asyncio.Semaphore(parallel)

    async def _request(self, path):
        async with self.slots:
            reader, writer = await asyncio.open_connection(self.host, self.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
            raw = await reader.read()
            writer.close()
            return json.loads(raw.split(b"\r\n\r\n", 1)[1])

    def get(self, path):
        return asyncio.run_coroutine_threadsafe(self._request(path), self.loop).result()

    def get_many(self, paths):
        async def gather():
            return await asyncio.gather(*(self._request(p) for p in paths))
        return asyncio.run_coroutine_threadsafe(gather(), self.loop).result()


class SurgeWindows(Dataset):
    def __init__(self, api, history=288, horizon=36):
        self.api, self.history, self.horizon = api, history, horizon
        self.count = api.get("/stations/all")["count"]
        some = np.concatenate([r["level"] for r in api.get_many([f"/series/{i}" for i in range(8)])])
        self.mu, self.sigma = float(some.mean()), float(some.std())

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        level = np.asarray(self.api.get(f"/series/{i}")["level"], np.float32)
        level = (level - self.mu) / self.sigma
        start = int(torch.randint(0, len(level) - self.history - self.horizon, ()))
        cut = torch.from_numpy(level[start:start + self.history + self.horizon])
        return cut[: self.history], cut[self.history:]


def fit(api, epochs=3):
    data = SurgeWindows(api)
    print(f"{len(data)} stations, mean level {data.mu:.2f} m", flush=True)
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2, prefetch_factor=3, persistent_workers=True)
    net = nn.Sequential(nn.Linear(288, 128), nn.ELU(), nn.Linear(128, 36))
    opt = torch.optim.RMSprop(net.parameters(), 1e-3)
    for epoch in range(epochs):
        run = 0.0
        for past, future in loader:
            loss = (net(past) - future).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            run = 0.9 * run + 0.1 * loss.item()
        print(f"epoch {epoch}: smoothed mse {run:.4f}", flush=True)


def main():
    torch.manual_seed(4)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), HarbourService)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    fit(GaugeAPI(*server.server_address))


if __name__ == "__main__":
    main()
