# cause: many-small-tensors
"""Message passing network that regresses aqueous solubility from 3D conformers."""
import argparse
import dataclasses
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


@dataclasses.dataclass
class Conformer:
    atoms: torch.Tensor
    coords: torch.Tensor
    edges: torch.Tensor
    radial: torch.Tensor
    angular: torch.Tensor
    target: torch.Tensor


class ConformerSet(Dataset):
    """Coordinates and element numbers of all molecules, packed one after the other."""

    def __init__(self, count, seed=0, cutoff=2.6):
        rng = np.random.default_rng(seed)
        self.sizes = rng.integers(16, 30, count)
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)])
        self.numbers = rng.choice(np.array([1, 6, 7, 8, 16]), self.offsets[-1], p=[0.45, 0.35, 0.08, 0.1, 0.02])
        self.positions = rng.normal(0.0, 1.8, (self.offsets[-1], 3)).astype(np.float32)
        self.cutoff = cutoff
        self.centres = np.linspace(0.5, cutoff, 16, dtype=np.float32)

    def __len__(self):
        return len(self.sizes)

    def angular_features(self, unit, near):
        cosines = np.einsum("ijc,ikc->ijk", unit, unit)
        pairs = near[:, :, None] & near[:, None, :]
        shells = [np.where(pairs, (1.0 + sign * cosines) ** power, 0.0).sum((1, 2)) for sign in (-1.0, 1.0) for power in (1, 2, 4)]
        return np.log1p(np.stack(shells, 1)).astype(np.float32)

    def __getitem__(self, index):
        rows = slice(self.offsets[index], self.offsets[index + 1])
        z, xyz = self.numbers[rows], self.positions[rows]
        delta = xyz[:, None] - xyz[None]
        dist = np.sqrt((delta ** 2).sum(-1)) + 1e-6
        near = (dist < self.cutoff) & ~np.eye(len(z), dtype=bool)
        src, dst = np.nonzero(near)
        radial = np.exp(-8.0 * (dist[src, dst, None] - self.centres) ** 2)
        angular = self.angular_features(delta / dist[..., None], near)
        polar = ((z == 7) | (z == 8)).mean()
        target = 2.0 * polar - 0.05 * len(z) + 0.1 * angular[:, 2].mean()
        return Conformer(torch.from_numpy(z.copy()), torch.from_numpy(xyz.copy()), torch.from_numpy(np.stack([src, dst])),
                         torch.from_numpy(radial), torch.from_numpy(angular), torch.tensor([target], dtype=torch.float32))


class MoleculeBatch:
    """What the network wants; merged into one disconnected graph right before the forward pass."""

    def __init__(self, items):
        for field in dataclasses.fields(Conformer):
            setattr(self, field.name, [getattr(item, field.name) for item in items])

    def merged(self):
        sizes = torch.tensor([len(a) for a in self.atoms])
        shift = torch.cumsum(sizes, 0) - sizes
        edges = torch.cat([e + s for e, s in zip(self.edges, shift)], 1)
        owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        return torch.cat(self.atoms), edges, torch.cat(self.radial), torch.cat(self.angular), owner, torch.cat(self.target)


class SolubilityNet(nn.Module):
    def __init__(self, width=32, rounds=2):
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.lift = nn.Linear(6, width)
        self.gates = nn.ModuleList(nn.Linear(16, width) for _ in range(rounds))
        self.updates = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.readout = nn.Linear(width, 1)

    def forward(self, atoms, edges, radial, angular, owner, graphs):
        h = self.embed(atoms) + self.lift(angular)
        for gate, update in zip(self.gates, self.updates):
            message = torch.tanh(gate(radial)) * h[edges[0]]
            h = h + torch.relu(update(torch.zeros_like(h).index_add(0, edges[1], message)))
        pooled = torch.zeros(graphs, h.shape[1]).index_add(0, owner, h)
        return self.readout(pooled / 20.0).squeeze(1)


def build_loaders(args):
    full = ConformerSet(args.molecules)
    held_out = args.molecules // 8
    train, val = random_split(full, [args.molecules - held_out, held_out], generator=torch.Generator().manual_seed(1))
    common = dict(batch_size=args.batch_size, num_workers=args.workers, collate_fn=MoleculeBatch, persistent_workers=args.workers > 0)
    return DataLoader(train, shuffle=True, **common), DataLoader(val, **common)


def run_epoch(model, loader, optimizer=None):
    total, seen = 0.0, 0
    with torch.set_grad_enabled(optimizer is not None):
        for batch in loader:
            atoms, edges, radial, angular, owner, target = batch.merged()
            loss = nn.functional.smooth_l1_loss(model(atoms, edges, radial, angular, owner, len(target)), target)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item() * len(target)
            seen += len(target)
    return total / seen, seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--molecules", type=int, default=1600)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    train_loader, val_loader = build_loaders(args)
    model = SolubilityNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        started = time.perf_counter()
        train_loss, seen = run_epoch(model, train_loader, optimizer)
        val_loss, val_seen = run_epoch(model, val_loader)
        rate = (seen + val_seen) / (time.perf_counter() - started)
        print(f"epoch {epoch}: train {train_loss:.4f} val {val_loss:.4f} ({rate:.0f} molecules/s)", flush=True)


if __name__ == "__main__":
    main()
