# arguments: --epochs 3
"""Band gaps of crystals from neighbour graphs: message passing, graphs of different size put in one batch."""
import argparse
import functools
import os
import socket
import socketserver
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset


def lattice(kind, n, rng):
    a = 3.0 + 0.4 * kind
    grid = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), -1).reshape(-1, 3) * a
    keep = rng.random(len(grid)) > 0.15
    return (grid + rng.normal(0, 0.1, grid.shape))[keep]


class Reference(socketserver.StreamRequestHandler):
    """Answers the reference energy of an element, one line a question."""

    def handle(self):
        for line in self.rfile:
            z = int(line)
            self.wfile.write(b"%.6f\n" % (0.3 * np.sin(z) + 0.05 * z))


def ask_reference(path, z, tries=3):
    for attempt in range(tries):
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(2.0)
                sock.connect(path)
                sock.sendall(b"%d\n" % z)
                return float(sock.makefile("rb").readline())
        except (socket.timeout, ConnectionError):
            if attempt == tries - 1:
                return 0.0
            time.sleep(0.05)


def reference_table(folder):
    """The table is asked for once, before training; the server is stopped again."""
    path = os.path.join(folder, "ref.sock")
    with socketserver.ThreadingUnixStreamServer(path, Reference) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            return torch.tensor([ask_reference(path, z) for z in range(12)])
        finally:
            server.shutdown()
            thread.join()


class Crystals(Dataset):
    def __init__(self, kind, count, reference, seed):
        self.kind, self.count, self.seed = kind, count, seed
        self.reference = reference

    def __len__(self):
        return self.count

    @functools.lru_cache(maxsize=8)
    def radial(self, bins):
        return np.linspace(0, 6, bins, dtype=np.float32)

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, self.kind, i))
        xyz = lattice(self.kind, int(rng.integers(2, 5)), rng)
        z = rng.integers(0, 12, len(xyz))
        delta = xyz[:, None] - xyz[None]
        dist = np.sqrt((delta ** 2).sum(-1))
        src, dst = np.nonzero((dist < 5.0) & (dist > 0.1))
        edge = np.exp(-((dist[src, dst, None] - self.radial(16)) ** 2) / 0.3).astype(np.float32)
        shells = np.mean([np.histogram(dist[k], 12, (0.5, 9.0))[0] for k in range(0, len(dist), 2)], 0)
        energy = self.reference[torch.from_numpy(z)]
        gap = 1.5 + 0.8 * self.kind + energy.mean().item() - 0.02 * len(src) / len(xyz) + 0.01 * shells[6:].mean()
        return torch.from_numpy(z), torch.from_numpy(np.stack([src, dst])), torch.from_numpy(edge), np.float32(gap)


def merge(graphs):
    z, pairs, edge, gap = zip(*graphs)
    sizes = torch.tensor([len(a) for a in z])
    shift = sizes.cumsum(0) - sizes
    owner = torch.repeat_interleave(torch.arange(len(z)), sizes)
    return torch.cat(z), torch.cat([p + s for p, s in zip(pairs, shift)], 1), torch.cat(edge), owner, torch.tensor(gap)


class MessagePassing(nn.Module):
    def __init__(self, width=48, rounds=3):
        super().__init__()
        self.embed = nn.Embedding(12, width)
        self.filters = nn.ModuleList(nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width)) for _ in range(rounds))
        self.update = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.head = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, z, pairs, edge, owner, graphs):
        h = self.embed(z)
        for weight, update in zip(self.filters, self.update):
            message = h[pairs[1]] * weight(edge)
            h = h + torch.nn.functional.silu(update(torch.zeros_like(h).index_add(0, pairs[0], message)))
        count = torch.bincount(owner, minlength=graphs).clamp(min=1).unsqueeze(1)
        return self.head(torch.zeros(graphs, h.shape[1]).index_add(0, owner, h) / count).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="xtal-") as folder:
        reference = reference_table(folder)
    kw = dict(batch_size=args.batch, num_workers=args.workers, persistent_workers=args.workers > 0, collate_fn=merge)
    train = DataLoader(ConcatDataset([Crystals(k, 420, reference, 1) for k in range(3)]), shuffle=True, **kw)
    valid = DataLoader(ConcatDataset([Crystals(k, 30, reference, 2) for k in range(3)]), **kw)
    model = MessagePassing()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        begin = time.time()
        for *graph, gap in train:
            loss = nn.functional.l1_loss(model(*graph, len(gap)), gap)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            errors = torch.cat([(model(*graph, len(gap)) - gap).abs() for *graph, gap in valid])
        print(f"epoch {epoch}: train {loss.item():.3f}, valid {errors.mean():.3f} eV, {time.time() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
