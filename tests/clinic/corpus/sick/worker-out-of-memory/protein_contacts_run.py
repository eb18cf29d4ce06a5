# cause: worker-out-of-memory
# limits: memory=1G
"""Predicts residue contact density from sequence, over synthetic protein chains with a long tailed length."""
import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

AMINO_ACIDS = 20


@dataclass
class Settings:
    chains: int = 360
    tail: float = 2.6
    longest: int = 1500
    assemblies: int = 2  # a few viral capsids among the single chains
    keep: int = 384
    cutoff: float = 8.0
    batch: int = 12
    epochs: int = 3
    lr: float = 2e-3
    widths: tuple = field(default=(32, 32))


class ContactProfile:
    """Number of residues near each residue, at several radii, from C-alpha coordinates."""

    def __init__(self, cutoff):
        self.radii = [cutoff, 1.5 * cutoff, 2 * cutoff]

    def __call__(self, xyz):
        gap = xyz[:, None, :] - xyz[None, :, :]
        distance = np.sqrt((gap * gap).sum(-1))
        return np.stack([(distance < r).sum(1) for r in self.radii], 1).astype(np.float32)


class RandomWindow:
    def __init__(self, length):
        self.length = length

    def __call__(self, *arrays):
        n = len(arrays[0])
        start = torch.randint(max(1, n - self.length + 1), ()).item()
        return [a[start:start + self.length] for a in arrays]


class Chains(Dataset):
    def __init__(self, settings, seed):
        rng = np.random.default_rng(seed)
        lengths = 90 * (1 + rng.pareto(settings.tail, settings.chains))
        self.lengths = np.clip(lengths, 60, settings.longest).astype(int)
        self.lengths[rng.choice(settings.chains, settings.assemblies, replace=False)] = 7800
        self.seed = seed
        self.profile = ContactProfile(settings.cutoff)
        self.window = RandomWindow(settings.keep)

    def __len__(self):
        return len(self.lengths)

    def fold(self, index):
        rng = np.random.default_rng([self.seed, index])
        n = self.lengths[index]
        sequence = rng.integers(0, AMINO_ACIDS, n)
        turn = 0.4 + 0.5 * np.convolve(sequence > 11, np.ones(7) / 7, "same")[:, None]
        steps = rng.standard_normal((n, 3)) * turn
        steps[1:] += 0.6 * steps[:-1]
        steps *= 3.8 / np.linalg.norm(steps, axis=1, keepdims=True)
        return sequence, steps.cumsum(0).astype(np.float32)

    def __getitem__(self, index):
        sequence, xyz = self.fold(index)
        profile = self.profile(xyz)
        sequence, profile = self.window(sequence, profile)
        return torch.from_numpy(sequence.copy()), torch.from_numpy(np.log1p(profile))


class LengthBuckets(Sampler):
    """Batches of like lengths, in random order."""

    def __init__(self, lengths, batch):
        self.lengths, self.batch = np.asarray(lengths), batch

    def __len__(self):
        return math.ceil(len(self.lengths) / self.batch)

    def __iter__(self):
        order = np.argsort(self.lengths + np.random.uniform(0, 5, len(self.lengths)))
        batches = np.array_split(order, len(self))
        for k in torch.randperm(len(batches)).tolist():
            yield batches[k].tolist()


def collate(samples):
    sequences, profiles = zip(*samples)
    length = torch.tensor([len(s) for s in sequences])
    return pad_sequence(sequences, batch_first=True), pad_sequence(profiles, batch_first=True), length


class ProfileNet(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.embed = nn.Embedding(AMINO_ACIDS, widths[0])
        inside, layers = widths[0], []
        for width in widths:
            layers += [nn.Conv1d(inside, width, 9, padding=4), nn.GELU()]
            inside = width
        self.trunk = nn.Sequential(*layers)
        self.head = nn.Conv1d(inside, 3, 1)

    def forward(self, sequence):
        return self.head(self.trunk(self.embed(sequence).transpose(1, 2))).transpose(1, 2)


def masked_error(model, batch):
    sequence, profile, length = batch
    mask = (torch.arange(sequence.shape[1]) < length[:, None])[..., None]
    return ((model(sequence) - profile).abs() * mask).sum() / (3 * mask.sum())


def main(settings=Settings()):
    torch.manual_seed(0)
    np.random.seed(0)
    data = Chains(settings, seed=4)
    print(f"{len(data)} chains, median length {int(np.median(data.lengths))}", flush=True)
    loader = DataLoader(data, batch_sampler=LengthBuckets(data.lengths, settings.batch), collate_fn=collate,
                        num_workers=2, persistent_workers=True)
    model = ProfileNet(settings.widths)
    optimizer = torch.optim.Adam(model.parameters(), settings.lr)
    for epoch in range(settings.epochs):
        losses = []
        for batch in loader:
            loss = masked_error(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch} error {np.mean(losses):.4f}", flush=True)


if __name__ == "__main__":
    main()
