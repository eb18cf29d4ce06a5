# cause: handle-shared-across-fork
"""Energies of small-molecule conformers with a radial-basis network. Conformers lie in .npz shards."""
import pathlib
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, random_split

CONFIG = dict(shards=2, per_shard=500, batch_size=16, epochs=4, workers=2, lr=2e-3, cutoff=6.0, basis=24)


def write_shards(folder, shards, per_shard):
    rng = np.random.default_rng(17)
    for s in range(shards):
        arrays = {}
        for k in range(per_shard):
            n = int(rng.integers(18, 36))
            z = rng.choice([1, 6, 7, 8], size=n, p=[0.5, 0.35, 0.05, 0.1])
            frames = rng.normal(0, 2.5, (40, n, 3))
            arrays[f"mol{k:05d}"] = np.concatenate([np.broadcast_to(z[None, :, None], (40, n, 1)), frames], -1).astype(np.float32)
        np.savez(folder / f"shard{s}.npz", **arrays)


class ShardBase(Dataset):
    """What all shard formats have in common; subclasses know how to open one and read an entry."""

    def __init__(self, path):
        self.path = path
        self.table = self.open(path)
        self.names = sorted(self.keys())

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        return self.convert(self.read(self.names[i]))


class ConformerShard(ShardBase):
    def open(self, path):
        return np.load(path)

    def keys(self):
        return self.table.files

    def read(self, name):
        return self.table[name]

    def convert(self, entry):
        frame = entry[np.random.randint(len(entry))]
        z, xyz = frame[:, 0].astype(np.int64), frame[:, 1:]
        delta = xyz[:, None] - xyz[None]
        dist = np.sqrt((delta**2).sum(-1) + 1e-6)
        centres = np.linspace(0.5, CONFIG["cutoff"], CONFIG["basis"])
        rbf = np.exp(-4 * (dist[..., None] - centres) ** 2) * (dist < CONFIG["cutoff"])[..., None]
        off = ~np.eye(len(z), dtype=bool)
        charge = z / 8.0
        energy = (charge[:, None] * charge[None] / (dist + 0.5))[off].sum() / len(z)
        return torch.from_numpy(z), torch.from_numpy((rbf * off[..., None]).astype(np.float32)), torch.tensor(energy, dtype=torch.float32)


def pad_molecules(items):
    width = max(len(z) for z, _, _ in items)
    zs = torch.zeros(len(items), width, dtype=torch.long)
    rbfs = torch.zeros(len(items), width, width, CONFIG["basis"])
    for row, (z, rbf, _) in enumerate(items):
        zs[row, :len(z)] = z
        rbfs[row, :len(z), :len(z)] = rbf
    return zs, rbfs, torch.stack([e for _, _, e in items])


class RadialNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(10, width, padding_idx=0)
        self.filter = nn.Linear(CONFIG["basis"], width)
        self.out = nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, z, rbf):
        h = self.embed(z)
        h = h + torch.einsum("bijw,bjw->biw", self.filter(rbf), h)
        mask = (z > 0).float()
        return (self.out(h).squeeze(-1) * mask).sum(1) / mask.sum(1)


class Experiment:
    def __init__(self, folder):
        write_shards(folder, CONFIG["shards"], CONFIG["per_shard"])
        data = ConcatDataset([ConformerShard(p) for p in sorted(folder.glob("shard*.npz"))])
        train, test = random_split(data, [0.85, 0.15], torch.Generator().manual_seed(0))
        self.train, self.test = self.loader(train, True), self.loader(test, False)
        self.net = RadialNet()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=CONFIG["lr"])

    @staticmethod
    def loader(data, shuffle):
        return DataLoader(data, CONFIG["batch_size"], shuffle=shuffle, collate_fn=pad_molecules,
                          num_workers=CONFIG["workers"], persistent_workers=True)

    def step(self, batch):
        z, rbf, energy = batch
        return nn.functional.mse_loss(self.net(z, rbf), energy)

    def run(self):
        for epoch in range(CONFIG["epochs"]):
            t0, losses = time.time(), []
            for batch in self.train:
                loss = self.step(batch)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                losses.append(loss.item())
            with torch.no_grad():
                test = np.mean([self.step(batch).item() for batch in self.test])
            print(f"{epoch}: train {np.mean(losses):.4f} test {test:.4f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as name:
        Experiment(pathlib.Path(name)).run()
