# cause: sample-mutated-in-place
"""Action recognition from skeleton sequences (25 joints), bone and motion features, temporal CNN."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

JOINTS, FRAMES, ACTIONS = 25, 96, 6
PARENT = np.array([max(0, (j - 1) // 2) for j in range(JOINTS)])


class SkeletonStore:
    """All sequences of the set in one float32 array (sequence, frame, joint, xyz)."""

    def __init__(self, count, seed):
        g = np.random.default_rng(seed)
        self.action = g.integers(0, ACTIONS, count)
        t = np.linspace(0, 2 * np.pi, FRAMES, dtype=np.float32)[None, :, None, None]
        phase = g.uniform(0, 6.28, (count, 1, JOINTS, 3)).astype(np.float32)
        speed = (1 + self.action)[:, None, None, None].astype(np.float32)
        self.data = np.sin(speed * t + phase) * 0.4 + 3.0 + g.normal(0, 0.1, (count, FRAMES, JOINTS, 3)).astype(np.float32)
        self.data = self.data.astype(np.float32)

    def statistics(self):
        return self.data.mean((0, 1, 2)), self.data.std((0, 1, 2))

    def clip(self, i):
        return self.data[i]


class Standardize:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __call__(self, x):
        np.subtract(x, self.mean, out=x)
        return np.divide(x, self.std, out=x)


class Speed:
    """Resamples time a little faster or slower."""

    def __call__(self, x):
        at = np.clip(np.arange(FRAMES) * np.random.uniform(0.8, 1.2), 0, FRAMES - 1.001)
        lo = at.astype(int)
        w = (at - lo)[:, None, None].astype(np.float32)
        return x[lo] * (1 - w) + x[lo + 1] * w


class Features:
    """Joint positions, bones, motion and distances between the joints."""

    def __call__(self, x):
        bones = x - x[:, PARENT]
        motion = np.diff(x, axis=0, prepend=x[:1])
        pair = np.sqrt(((x[:, :, None] - x[:, None]) ** 2).sum(-1))
        near = np.sort(pair, axis=-1)[..., 1:4]
        return np.concatenate([x, bones, motion, near], -1).reshape(FRAMES, -1)


class Sequences(Dataset):
    def __init__(self, store, steps):
        self.store, self.steps = store, steps

    def __len__(self):
        return len(self.store.action)

    def __getitem__(self, i):
        x = self.store.clip(i)
        for step in self.steps:
            x = step(x)
        return torch.from_numpy(x.astype(np.float32)).T.contiguous(), int(self.store.action[i])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(JOINTS * 12, 32, 5, 2), nn.ReLU(), nn.Conv1d(32, 32, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten())
        self.head = nn.Linear(128, ACTIONS)

    def forward(self, x):
        return self.head(self.body(x))


def evaluate(net, loader):
    net.eval()
    with torch.no_grad():
        hits = torch.cat([net(x).argmax(1) == y for x, y in loader])
    net.train()
    return hits.float().mean().item()


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--sequences", type=int, default=900)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=25)
    p.add_argument("--num-workers", type=int, default=2)
    a = p.parse_args(argv)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    store = SkeletonStore(a.sequences, seed=42)
    norm = Standardize(*store.statistics())
    held = SkeletonStore(100, seed=43)
    train = DataLoader(Sequences(store, [norm, Speed(), Features()]), a.batch_size, shuffle=True, num_workers=a.num_workers, persistent_workers=True)
    val = DataLoader(Subset(Sequences(held, [norm, Features()]), range(100)), 50)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
    for epoch in range(a.epochs):
        t, loss_sum, spread = time.time(), 0.0, []
        for x, y in train:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            loss_sum += loss.item() * len(y)
            spread.append(x.abs().mean().item())
        print(f"epoch {epoch} loss {loss_sum / a.sequences:.3f} val {evaluate(net, val):.2f} input scale {np.mean(spread):.2f} {time.time() - t:.1f}s", flush=True)


if __name__ == "__main__":
    main()
