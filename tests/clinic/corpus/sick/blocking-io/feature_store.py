# cause: blocking-io
"""Ranking model whose item features come from a small feature service."""
import argparse
import json
import random
import socket
import socketserver
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class FeatureHandler(socketserver.StreamRequestHandler):
    """One JSON request per line, one JSON answer per line."""

    def handle(self):
        for line in self.rfile:
            item = json.loads(line)["item"]
            shard = item % self.server.shards
            if shard == self.server.shards - 1 and item > 150:
                self.server.rebalancing.wait()
            rng = random.Random(item)
            time.sleep(0.002)
            body = {"item": item, "features": [round(rng.gauss(0, 1), 4) for _ in range(64)]}
            self.wfile.write(json.dumps(body).encode() + b"\n")


class FeatureServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    shards = 17
    rebalancing = threading.Event()


class FeatureClient:
    def __init__(self, address):
        self.address = address
        self._file = None

    def get(self, item):
        if self._file is None:
            sock = socket.create_connection(self.address)
            self._file = sock.makefile("rwb")
        self._file.write(json.dumps({"item": item}).encode() + b"\n")
        self._file.flush()
        return json.loads(self._file.readline())["features"]


class RankingPairs(Dataset):
    def __init__(self, client, pairs):
        self.client, self.pairs = client, pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        better, worse = self.pairs[i]
        return torch.tensor(self.client.get(better)), torch.tensor(self.client.get(worse))


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--items", type=int, default=400)
    ap.add_argument("--pairs", type=int, default=600)
    ap.add_argument("--epochs", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    r = random.Random(0)
    pairs = sorted(tuple(sorted(r.sample(range(args.items), 2), reverse=True)) for _ in range(args.pairs))

    server = FeatureServer(("127.0.0.1", 0), FeatureHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    loader = DataLoader(RankingPairs(FeatureClient(server.server_address), pairs), batch_size=16, num_workers=2,
                        persistent_workers=True)
    model = Scorer()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(args.epochs):
        for better, worse in loader:
            loss = -nn.functional.logsigmoid(model(better) - model(worse)).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 2 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    server.shutdown()


if __name__ == "__main__":
    main()
