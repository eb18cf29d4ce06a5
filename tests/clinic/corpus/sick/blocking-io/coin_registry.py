# cause: blocking-io
"""Date ancient coins from weight, diameter and legend. The legend comes from the museum's registry service."""
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
    """Stands for the registry; some entries are being edited and are not given out until the editor has closed them."""

    daemon_threads = True

    def __init__(self, editing=()):
        super().__init__(("127.0.0.1", 0), SimpleXMLRPCRequestHandler, logRequests=False)
        self.editing = {number: threading.Event() for number in editing}
        self.register_function(self.legend)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def legend(self, number):
        if number in self.editing:
            self.editing[number].wait()
        rng = np.random.default_rng(number)
        return "".join(LETTERS[k] for k in rng.integers(0, len(LETTERS), 10)) + LETTERS[number % 7]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


@dataclass
class Catalogue:
    url: str

    def legend(self, number):
        with xmlrpc.client.ServerProxy(self.url) as registry:
            return registry.legend(number)


class Coins(Dataset):
    def __init__(self, table: Path, catalogue):
        self.rows = np.load(table)
        self.catalogue = catalogue

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        number, weight, diameter = self.rows[i]
        time.sleep(0.002)
        text = self.catalogue.legend(int(number))
        onehot = np.zeros((11, len(LETTERS)), np.float32)
        onehot[np.arange(11), [LETTERS.index(c) for c in text]] = 1
        x = np.concatenate([onehot.ravel(), [weight / 8, diameter / 30]]).astype(np.float32)
        return x, np.float32((number % 7) / 7)


class Dater(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 1))

    def forward(self, x):
        return self.layers(x).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--coins", type=int, default=360)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(10)
    torch.set_num_threads(1)
    registry = Registry(editing=[241])
    with tempfile.TemporaryDirectory() as tmp:
        rng = np.random.default_rng(1)
        np.save(Path(tmp) / "coins.npy", np.stack([np.arange(args.coins), rng.normal(4, 1, args.coins), rng.normal(20, 3, args.coins)], 1))
        data = Coins(Path(tmp) / "coins.npy", Catalogue(registry.url))
        loader = DataLoader(data, 12, shuffle=True, num_workers=args.workers, persistent_workers=True)
        model = Dater(11 * len(LETTERS) + 2)
        opt = torch.optim.Adam(model.parameters(), 2e-3)
        best = float("inf")
        for epoch in range(args.epochs):
            losses = []
            for step, (x, y) in enumerate(loader):
                loss = nn.functional.mse_loss(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                if step % 5 == 0:
                    print(f"epoch {epoch} step {step} mse {loss.item():.4f}", flush=True)
            if np.mean(losses) < best:
                best = np.mean(losses)
                torch.save(model.state_dict(), Path(tmp) / "best.pt")
        print(f"best {best:.4f}", flush=True)


if __name__ == "__main__":
    main()
