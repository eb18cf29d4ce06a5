# cause: nested-workers
"""Prototypical networks on procedurally drawn glyphs; one item of the outer loader is one episode."""
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

WAY, SHOT, QUERY = 5, 3, 4


class Glyphs(Dataset):
    def __init__(self, alphabets=30, per=20):
        self.alphabets, self.per = alphabets, per

    def __len__(self):
        return self.alphabets * self.per

    def of_class(self, c):
        return range(c * self.per, (c + 1) * self.per)

    def __getitem__(self, i):
        cls, var = divmod(i, self.per)
        base, jitter = np.random.default_rng(cls), np.random.default_rng(10_000 + i)
        img = np.zeros((28, 28), np.float32)
        y, x = 14.0, 14.0
        for _ in range(40):
            dy, dx = base.normal(0, 2, 2) + jitter.normal(0, 0.4, 2)
            for s in np.linspace(0, 1, 6):
                img[int(np.clip(y + s * dy, 0, 27)), int(np.clip(x + s * dx, 0, 27))] = 1.0
            y, x = np.clip(y + dy, 0, 27), np.clip(x + dx, 0, 27)
        return torch.from_numpy(img)[None], cls


def fast_stack(dataset, indices, workers):
    """Materialise a set of samples as one tensor."""
    bulk = DataLoader(Subset(dataset, indices), batch_size=len(indices), num_workers=workers)
    images, _ = next(iter(bulk))
    return images


class Episodes(Dataset):
    def __init__(self, base, classes, count, fetch_workers=2):
        self.base, self.classes, self.count = base, classes, count
        self.fetch_workers = fetch_workers

    def __len__(self):
        return self.count

    def __getitem__(self, _):
        chosen = random.sample(self.classes, WAY)
        idx = [i for c in chosen for i in random.sample(self.base.of_class(c), SHOT + QUERY)]
        x = fast_stack(self.base, idx, self.fetch_workers).view(WAY, SHOT + QUERY, 1, 28, 28)
        return x[:, :SHOT], x[:, SHOT:]


class Embed(nn.Sequential):
    def __init__(self):
        super().__init__(*[m for a, b in ((1, 16), (16, 16), (16, 16)) for m in (nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU())], nn.Flatten())


def episode_loss(net, support, query):
    proto = net(support.flatten(0, 1)).view(WAY, SHOT, -1).mean(1)
    q = net(query.flatten(0, 1))
    target = torch.arange(WAY).repeat_interleave(QUERY)
    logits = -torch.cdist(q, proto).square()
    return nn.functional.cross_entropy(logits, target), (logits.argmax(1) == target).float().mean()


def main():
    torch.manual_seed(3)
    base = Glyphs()
    train = DataLoader(Episodes(base, list(range(22)), 120), batch_size=None, num_workers=2)
    test = DataLoader(Episodes(base, list(range(22, 30)), 30), batch_size=None, num_workers=2)
    net = Embed()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(2):
        net.train()
        for s, q in train:
            loss, acc = episode_loss(net, s, q)
            opt.zero_grad()
            loss.backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            accs = [episode_loss(net, s, q)[1].item() for s, q in test]
        print(f"epoch {epoch} test accuracy {np.mean(accs):.3f}", flush=True)


if __name__ == "__main__":
    main()
