# cause: socket-path-too-long
# limits: tmpdir=long
"""Isolated sign recognition from hand keypoint sequences of unequal length (packed GRU)."""
import logging

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
logger = logging.getLogger("signs")

SIGNS = 8
JOINTS = 21


class Smooth:
    def __init__(self, span=5):
        self.kernel = np.hanning(span + 2)[1:-1]
        self.kernel /= self.kernel.sum()

    def __call__(self, track):
        columns = track.reshape(len(track), -1)
        smooth = [np.convolve(c, self.kernel, "same") for c in columns.T]
        return np.stack(smooth, 1).reshape(track.shape)


class Rotate:
    def __init__(self, degrees=15):
        self.limit = np.deg2rad(degrees)

    def __call__(self, track):
        a = np.random.uniform(-self.limit, self.limit)
        return track @ np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])


class Speed:
    """Plays the sign faster or slower."""

    def __init__(self, spread=0.25):
        self.spread = spread

    def __call__(self, track):
        length = int(len(track) * np.random.uniform(1 - self.spread, 1 + self.spread))
        at = np.linspace(0, len(track) - 1, length)
        flat = track.reshape(len(track), -1)
        played = [np.interp(at, np.arange(len(track)), c) for c in flat.T]
        return np.stack(played, 1).reshape(length, JOINTS, 2)


class SignClips(Dataset):
    def __init__(self, count, seed, transforms=()):
        rng = np.random.default_rng(seed)
        self.labels = rng.choice(SIGNS, count, p=np.arange(1, SIGNS + 1) / sum(range(1, SIGNS + 1)))
        self.lengths = rng.integers(40, 90, count)
        self.seed = seed
        self.transforms = transforms

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        rng = np.random.default_rng([self.seed, index])
        label, n = self.labels[index], self.lengths[index]
        phase = np.linspace(0, 2 * np.pi, n)[:, None]
        joints = np.arange(JOINTS)[None]
        x = np.sin(phase * (1 + label % 3) + joints / 6)
        y = np.cos(phase * (1 + label // 3) + joints / 4)
        track = np.stack([x, y], -1) + rng.normal(0, 0.15, (n, JOINTS, 2))
        for transform in self.transforms:
            track = transform(track)
        return torch.from_numpy(track.reshape(len(track), -1).astype(np.float32)), int(label)


def collate_signs(samples):
    """Sorted by length, longest first: what the packed GRU likes best."""
    samples = sorted(samples, key=lambda s: -len(s[0]))
    return [clip for clip, _ in samples], torch.tensor([label for _, label in samples])


class SignGRU(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.gru = nn.GRU(JOINTS * 2, hidden)
        self.head = nn.Linear(hidden, SIGNS)

    def forward(self, clips):
        _, state = self.gru(pack_sequence(clips))
        return self.head(state[-1])


def build_loaders(batch_size=16):
    train = SignClips(1800, 1, [Speed(), Rotate(), Smooth()])
    val = SignClips(240, 2, [Smooth()])
    frequency = np.bincount(train.labels, minlength=SIGNS)
    sampler = WeightedRandomSampler(1.0 / frequency[train.labels], len(train))
    options = dict(batch_size=batch_size, collate_fn=collate_signs, num_workers=2, persistent_workers=True)
    return DataLoader(train, sampler=sampler, **options), DataLoader(val, **options)


def accuracy(model, loader):
    model.eval()
    with torch.no_grad():
        right = [(model(clips).argmax(1) == labels).float() for clips, labels in loader]
    return torch.cat(right).mean().item()


def main():
    torch.manual_seed(0)
    train_loader, val_loader = build_loaders()
    model = SignGRU()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        model.train()
        total = 0.0
        for clips, labels in train_loader:
            loss = nn.functional.cross_entropy(model(clips), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        logger.info("epoch %d loss %.3f accuracy %.3f", epoch, total / len(train_loader), accuracy(model, val_loader))


if __name__ == "__main__":
    main()
