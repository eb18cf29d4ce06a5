# cause: too-few-workers
# also: workers-not-worth-it
"""Two-tower shop recommender; item descriptions come from the catalogue service, clicks are in memory."""
import http.client
import http.server
import json
import multiprocessing
import os
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

ITEMS = 2000


class CatalogueHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self):
        item = int(self.path.rsplit("/", 1)[1])
        time.sleep(0.012)
        rnd = random.Random(item)
        body = json.dumps({"id": item, "price": rnd.uniform(1, 90), "tags": rnd.sample(range(400), 12)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *a):
        pass


def serve(pipe):
    srv = http.server.ThreadingHTTPServer(("127.0.0.1", 0), CatalogueHandler)
    srv.daemon_threads = True
    pipe.send(srv.server_address[1])
    srv.serve_forever()


class ClicksWithItems(Dataset):
    def __init__(self, clicks, port):
        self.clicks, self.port = clicks, port
        self.conn, self.pid = None, None

    def __len__(self):
        return len(self.clicks)

    def describe(self, item):
        if self.pid != os.getpid():
            self.conn, self.pid = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10), os.getpid()
        self.conn.request("GET", f"/items/{item}")
        return json.loads(self.conn.getresponse().read())

    def __getitem__(self, i):
        user, item = self.clicks[i]
        doc = self.describe(item)
        return user, torch.tensor(doc["tags"]), torch.tensor([doc["price"] / 90])


class TwoTower(nn.Module):
    def __init__(self, users=500, dim=24):
        super().__init__()
        self.user = nn.Embedding(users, dim)
        self.tag = nn.EmbeddingBag(400, dim)
        self.price = nn.Linear(1, dim)

    def forward(self, user, tags, price):
        return self.user(user) @ (self.tag(tags) + self.price(price)).T


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    port = ours.recv()
    rnd = random.Random(1)
    clicks = [(rnd.randrange(500), rnd.randrange(ITEMS)) for _ in range(480)]
    train = DataLoader(ClicksWithItems(clicks, port), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)
    probe = TensorDataset(torch.randint(0, 500, (3000,)), torch.randint(0, 400, (3000, 12)), torch.rand(3000, 1))
    probes = DataLoader(probe, batch_size=4, num_workers=2, persistent_workers=True)
    model = TwoTower()
    opt = torch.optim.Adagrad(model.parameters(), 0.05)
    for epoch in range(2):
        for user, tags, price in train:
            logits = model(user, tags, price)
            loss = nn.functional.cross_entropy(logits, torch.arange(len(user)))
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            margin = sum(model(*b).diag().mean().item() for b in probes) / len(probes)
        print(f"epoch {epoch} loss {loss.item():.3f} probe score {margin:.3f}", flush=True)
    server.terminate()


if __name__ == "__main__":
    main()
