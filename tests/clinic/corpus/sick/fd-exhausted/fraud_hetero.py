# cause: fd-exhausted
# also: many-small-tensors
# limits: nofile=256
"""Neighbourhood classification on a typed payment network (accounts, cards, merchants, devices)."""
import math
import pickle
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

KINDS = ("account", "card", "merchant", "device")
LINKS = (("account", "card"), ("card", "merchant"), ("account", "device"), ("device", "merchant"))


@dataclass
class Ego:
    nodes: dict = field(default_factory=dict)
    links: dict = field(default_factory=dict)
    times: dict = field(default_factory=dict)
    label: int = 0


def write_network(root: Path, count: int):
    rng = np.random.default_rng(8)
    for k in range(count):
        sizes = {kind: int(rng.integers(3, 12)) for kind in KINDS}
        label = int(rng.integers(2))
        raw = {"sizes": sizes, "label": label,
               "x": {kind: rng.normal(0.6 * label, 1, (n, 16)).astype(np.float32) for kind, n in sizes.items()},
               "e": {pair: rng.integers(0, [[sizes[pair[0]]], [sizes[pair[1]]]], (2, 40)) for pair in LINKS},
               "t": {pair: np.sort(rng.uniform(0, 1e6, 40)) for pair in LINKS}}
        (root / f"ego_{k:05d}.pkl").write_bytes(pickle.dumps(raw))


def time_code(t, dim=8):
    freq = torch.exp(torch.arange(dim // 2) * (-math.log(1e5) / dim))
    ang = t.unsqueeze(1) * freq
    return torch.cat([ang.sin(), ang.cos()], dim=1).float()


class Egos(Dataset):
    def __init__(self, root):
        self.files = sorted(str(p) for p in Path(root).glob("ego_*.pkl"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, k):
        with open(self.files[k], "rb") as f:
            raw = pickle.load(f)
        ego = Ego(label=raw["label"])
        for kind in KINDS:
            x = torch.from_numpy(raw["x"][kind])
            ego.nodes[kind] = (x - x.mean(0)) / (x.std(0) + 1e-3)
            ego.nodes[kind] = torch.cat([ego.nodes[kind], x.mean(0, keepdim=True).expand_as(x)], 1)
        for pair in LINKS:
            e = torch.from_numpy(raw["e"][pair])
            keep = torch.rand(e.shape[1]) > 0.1
            ego.links[pair] = e[:, keep]
            ego.times[pair] = time_code(torch.from_numpy(raw["t"][pair])[keep])
        return ego


def gather(egos):
    return egos, torch.tensor([e.label for e in egos])


class TypedNet(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.enter = nn.ModuleDict({k: nn.Linear(32, hidden) for k in KINDS})
        self.along = nn.ModuleDict({"_".join(p): nn.Linear(hidden + 8, hidden) for p in LINKS})
        self.out = nn.Linear(hidden * len(KINDS), 2)

    def one(self, ego):
        h = {k: torch.relu(self.enter[k](ego.nodes[k])) for k in KINDS}
        for pair in LINKS:
            src, dst = ego.links[pair]
            msg = torch.relu(self.along["_".join(pair)](torch.cat([h[pair[0]][src], ego.times[pair]], 1)))
            h[pair[1]] = h[pair[1]].index_add(0, dst, msg) / 2
        return torch.cat([h[k].mean(0) for k in KINDS])

    def forward(self, egos):
        return self.out(torch.stack([self.one(e) for e in egos]))


def epoch(net, loader, opt=None):
    hits = n = 0
    for egos, y in loader:
        with torch.set_grad_enabled(opt is not None):
            logits = net(egos)
            loss = nn.functional.cross_entropy(logits, y)
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            opt.step()
        hits += (logits.argmax(1) == y).sum().item()
        n += len(y)
    return hits / n


def main():
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory(prefix="payments_") as tmp:
        write_network(Path(tmp), 400)
        train, val = random_split(Egos(tmp), [0.8, 0.2])
        common = dict(batch_size=24, num_workers=2, collate_fn=gather, persistent_workers=True)
        train_loader = DataLoader(train, shuffle=True, **common)
        val_loader = DataLoader(val, **common)
        net = TypedNet()
        opt = torch.optim.Adam(net.parameters(), lr=3e-3)
        for ep in range(3):
            a = epoch(net, train_loader, opt)
            b = epoch(net, val_loader)
            print(f"[{ep}] train {a:.3f}  val {b:.3f}", flush=True)


if __name__ == "__main__":
    main()
