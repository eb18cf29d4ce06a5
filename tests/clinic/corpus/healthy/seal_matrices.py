"""Date seals from weight, diameter and inscription. The inscription is asked for at the registry, for a limited time."""
import argparse
import socketserver
import tempfile
import threading
import time
import xmlrpc.client
from dataclasses import dataclass
from pathlib import Path
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS = "ABCDEFGHIKLMNOPQRSTVX"


class Registry(socketserver.ThreadingMixIn, SimpleXMLRPCServer):
    """Stands for the registry; entries that are being edited take a little longer."""

    daemon_threads = True

    def __init__(self, editing=()):
        super().__init__(("127.0.0.1", 0), SimpleXMLRPCRequestHandler, logRequests=False)
        self.editing = set(editing)
        self.register_function(self.inscription)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def inscription(self, number):
        if number in self.editing:
            time.sleep(0.2)
        rng = np.random.default_rng(number)
        return "".join(LETTERS[k] for k in rng.integers(0, len(LETTERS), 10)) + LETTERS[number % 7]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Impatient(xmlrpc.client.Transport):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def make_connection(self, host):
        connection = super().make_connection(host)
        connection.timeout = self.seconds
        return connection


@dataclass
class Catalogue:
    url: str
    seconds: float = 5.0
    tries: int = 2

    def inscription(self, number):
        for _ in range(self.tries):
            try:
                with xmlrpc.client.ServerProxy(self.url, transport=Impatient(self.seconds)) as registry:
                    return registry.inscription(number)
            except (OSError, xmlrpc.client.Fault):
                time.sleep(0.1)
        return "X" * 11


class Seals(Dataset):
    def __init__(self, table: Path, catalogue):
        self.rows = np.load(table)
        self.catalogue = catalogue

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        number, weight, diameter = self.rows[i]
        time.sleep(0.002)
        text = self.catalogue.inscription(int(number))
        onehot = np.zeros((11, len(LETTERS)), np.float32)
        onehot[np.arange(11), [LETTERS.index(c) for c in text]] = 1
        x = np.concatenate([onehot.ravel(), [weight / 8, diameter / 30]]).astype(np.float32)
        return x, np.float32((number % 7) / 7)


class SealNet(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 2048), nn.ReLU(), nn.Dropout(0.1), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 1))

    def forward(self, x):
        return self.layers(x).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seals", type=int, default=360)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(10)
    torch.set_num_threads(1)
    registry = Registry(editing=[241])
    with tempfile.TemporaryDirectory() as tmp:
        rng = np.random.default_rng(1)
        np.save(Path(tmp) / "seals.npy", np.stack([np.arange(args.seals), rng.normal(4, 1, args.seals), rng.normal(20, 3, args.seals)], 1))
        data = Seals(Path(tmp) / "seals.npy", Catalogue(registry.url))
        loader = DataLoader(data, 12, shuffle=True, num_workers=args.workers, persistent_workers=True)
        model = SealNet(11 * len(LETTERS) + 2)
        opt = torch.optim.Adam(model.parameters(), 3e-4)
        best = float("inf")
        for epoch in range(args.epochs):
            losses = []
            for step, (x, y) in enumerate(loader):
                loss = nn.functional.mse_loss(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                if step % 15 == 0:
                    print(f"epoch {epoch} step {step} mse {loss.item():.4f}", flush=True)
            if np.mean(losses) < best:
                best = np.mean(losses)
                torch.save(model.state_dict(), Path(tmp) / "best.pt")
        print(f"best {best:.4f}", flush=True)


if __name__ == "__main__":
    main()
