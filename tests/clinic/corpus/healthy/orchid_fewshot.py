"""Episodic training on orchid descriptors; the registry is parsed once per loader process."""
import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler


def build_registry(root: Path, taxa: int, each: int):
    rng = np.random.default_rng(7)
    feats = rng.normal(size=(taxa, 1, 64)) + 0.9 * rng.normal(size=(taxa, each, 64))
    np.save(root / "descriptors.npy", feats.reshape(-1, 64).astype(np.float32))
    sheets = {f"O{k:07d}": {"taxon": k // each, "row": k} for k in range(taxa * each)}
    synonyms = {f"ALT-{v}-{k}": f"O{k % len(sheets):07d}" for v in range(4) for k in range(60_000)}
    (root / "registry.json").write_text(json.dumps({"sheets": sheets, "synonyms": synonyms}))


class Registry:
    def __init__(self, root):
        self.root = root
        self.meta = self.rows = None

    def find(self, code):
        if self.meta is None:
            raw = json.loads((self.root / "registry.json").read_text())
            self.meta = {**{old: raw["sheets"][new] for old, new in raw["synonyms"].items()}, **raw["sheets"]}
            self.rows = np.load(self.root / "descriptors.npy", mmap_mode="r")
        entry = self.meta[code]
        return np.array(self.rows[entry["row"]]), entry["taxon"]


class Orchids(Dataset):
    def __init__(self, root, count):
        self.registry, self.count = Registry(root), count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        vec, taxon = self.registry.find(f"O{i:07d}")
        noise = np.random.standard_normal(vec.shape).astype(np.float32)
        return torch.from_numpy(vec + 0.05 * noise), taxon


class Episodes(Sampler):
    def __init__(self, taxa, each, way, shots, episodes):
        self.taxa, self.each, self.way, self.shots, self.episodes = taxa, each, way, shots, episodes

    def __len__(self):
        return self.episodes

    def __iter__(self):
        for _ in range(self.episodes):
            chosen = torch.randperm(self.taxa)[: self.way]
            yield torch.cat([c * self.each + torch.randperm(self.each)[: self.shots] for c in chosen]).tolist()


def make_model(width):
    return nn.Sequential(nn.Linear(64, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 64))


def episode_loss(z, way, shots, support):
    z = z.view(way, shots, -1)
    protos, query = z[:, :support].mean(1), z[:, support:].flatten(0, 1)
    target = torch.arange(way).repeat_interleave(shots - support)
    logits = -torch.cdist(query, protos)
    return F.cross_entropy(logits, target), (logits.argmax(1) == target).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--episodes", type=int, default=12)
    ap.add_argument("--width", type=int, default=1536)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    taxa, each, way, shots = 120, 40, 5, 15
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        build_registry(root, taxa, each)
        loader = DataLoader(Orchids(root, taxa * each), batch_sampler=Episodes(taxa, each, way, shots, args.episodes), num_workers=1, persistent_workers=True)
        model = make_model(args.width)
        opt = torch.optim.Adam(model.parameters(), lr=1e-4)
        for epoch in range(args.epochs):
            start, accs = time.time(), []
            for x, _ in loader:
                loss, acc = episode_loss(model(x), way, shots, support=5)
                opt.zero_grad()
                loss.backward()
                opt.step()
                accs.append(acc)
            print(f"epoch {epoch:02d} acc {np.mean(accs):.3f} ({time.time() - start:.2f}s)", flush=True)


if __name__ == "__main__":
    main()
