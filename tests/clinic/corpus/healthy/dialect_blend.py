"""Byte model on a blend of sources, each experiment in a folder of its own.  The blend interleaves small readers."""
import hashlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, get_worker_info

CONFIG = {"project": "dialect-blend", "sources": "mail-wiki-code", "optimizer": "adamw", "lr": 0.003, "width": 48, "batch": 16,
          "blocks": 480, "span": 1024, "epochs": 2, "schedule": "constant", "seed": 3}


def run_folder(base, cfg):
    name = "-".join(f"{k}={cfg[k]}" for k in ("sources", "optimizer", "lr", "width", "batch", "blocks", "span", "schedule", "seed"))
    path = Path(base) / cfg["project"] / f"{name}-{hashlib.sha1(json.dumps(cfg).encode()).hexdigest()[:10]}"
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(cfg))
    return path


class Source(Dataset):
    def __init__(self, path, span):
        self.path, self.span = path, span
        self.size = os.path.getsize(path) // span

    def __len__(self):
        return self.size

    def __getitem__(self, k):
        with open(self.path, "rb") as f:
            f.seek(k * self.span)
            b = np.frombuffer(f.read(self.span), dtype=np.uint8)
        lower = np.where((b >= 65) & (b <= 90), b + 32, b)
        text = lower.tobytes()
        rare = {text[i:i + 3] for i in range(len(text) - 2) if text.count(text[i:i + 3]) < 2}
        drop = np.array([text[i:i + 3] in rare for i in range(len(text))])
        noisy = np.where(drop & (np.random.rand(len(lower)) < 0.2), 32, lower)
        return torch.from_numpy(noisy.astype(np.int64))


class Blend(IterableDataset):
    """Draws from the sources in proportion to their weights until `total` blocks were given out."""

    def __init__(self, sources, weights, total):
        self.sources, self.weights, self.total = sources, weights, total

    def blocks(self, source, part, parts):
        mine = Subset(source, range(part, len(source), parts))
        while True:
            for group in DataLoader(mine, batch_size=4, shuffle=True, num_workers=0):
                yield from group

    def __iter__(self):
        info = get_worker_info()
        part, parts = (info.id, info.num_workers) if info else (0, 1)
        streams = [self.blocks(s, part, parts) for s in self.sources]
        p = np.asarray(self.weights) / sum(self.weights)
        for _ in range(self.total // parts):
            yield next(streams[np.random.choice(len(streams), p=p)])


class ByteModel(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.emb = nn.Embedding(256, dim)
        self.conv = nn.Conv1d(dim, dim, 8, stride=4)
        self.out = nn.Linear(dim, 256)

    def forward(self, x):
        h = nn.functional.pad(self.emb(x[:, :-1]).transpose(1, 2), (7, 0))
        return self.out(torch.relu(self.conv(h)).transpose(1, 2))


def write_sources(folder):
    rng = np.random.default_rng(55)
    for name, words in {"mail": "dear regards please thanks", "wiki": "the article city born", "code": "def return import self"}.items():
        path = folder / (name + ".txt")
        path.write_text(" ".join(rng.choice(words.split(), size=24000)))
        yield str(path)


def main(cfg):
    torch.manual_seed(cfg["seed"])
    base = tempfile.mkdtemp(prefix="runs_")
    try:
        folder = run_folder(base, cfg)
        sources = [Source(path, cfg["span"]) for path in write_sources(folder)]
        loader = DataLoader(Blend(sources, (3, 2, 1), cfg["blocks"]), batch_size=cfg["batch"], num_workers=2, persistent_workers=True)
        net = ByteModel(cfg["width"])
        opt = torch.optim.AdamW(net.parameters(), lr=cfg["lr"])
        for epoch in range(cfg["epochs"]):
            for x in loader:
                logits = net(x)
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1::4][:, :logits.shape[1]].flatten())
                opt.zero_grad()
                loss.backward()
                opt.step()
                time.sleep(0.04)    # stands for the accelerator
            torch.save(net.state_dict(), folder / "last.pt")
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main(CONFIG)
