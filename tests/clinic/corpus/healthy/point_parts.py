"""Part labelling on point clouds of differing size, joined into one tensor per batch."""
import argparse
import multiprocessing as mp

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    def __init__(self, n, served):
        self.n, self.served = n, served

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        k = int(rng.integers(250, 330))
        pts = rng.standard_normal((k, 3)).astype(np.float32)
        d = ((pts[:, None] - pts[None]) ** 2).sum(-1)
        density = np.sort(d, axis=1)[:, 1:9].mean(1, keepdims=True)
        with self.served.get_lock():
            self.served.value += 1
        return torch.from_numpy(np.concatenate([pts, density], 1)), torch.from_numpy((pts[:, 2] > 0).astype(np.int64))


def join(samples):
    sizes = torch.tensor([len(s[0]) for s in samples])
    return torch.cat([s[0] for s in samples]), torch.cat([s[1] for s in samples]), sizes


class PointNet(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, x, sizes):
        h = self.local(x)
        g = torch.cat([p.amax(0, keepdim=True).expand(len(p), -1) for p in h.split(sizes.tolist())])
        return self.head(torch.cat([h, g], 1))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--shapes", type=int, default=500)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(1)
    served = mp.Value("i", 0)
    loader = DataLoader(Shapes(a.shapes, served), a.batch, shuffle=True, collate_fn=join, num_workers=a.workers)
    model = PointNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (x, y, sizes) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x, sizes), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 24:
            print("step %d loss %.3f, %d shapes served" % (step + 1, loss.item(), served.value), flush=True)


if __name__ == "__main__":
    main()
