# cause: stale-dataset-in-workers
"""Self-training: a few plankton images are labelled, the rest take the label the model is surest of after every round."""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


def specimens(folder, n, kinds):
    rng = np.random.default_rng(66)
    truth = rng.integers(kinds, size=n)
    yy, xx = np.mgrid[-1:1:40j, -1:1:40j]
    for k, kind in enumerate(truth):
        ang = np.arctan2(yy, xx) * (kind + 2)
        shape = (np.hypot(yy, xx) < 0.6 + 0.25 * np.cos(ang + rng.uniform(0, 0.5))) * 200
        img = np.clip(shape + rng.normal(20, 25, shape.shape), 0, 255).astype(np.uint8)
        Image.fromarray(img, mode="L").save(os.path.join(folder, f"{k:05d}.png"), compress_level=1)
    return truth


class Plankton(Dataset):
    UNKNOWN = -100

    def __init__(self, folder, truth, labelled):
        self.folder = folder
        self.targets = np.full(len(truth), self.UNKNOWN)
        self.targets[labelled] = truth[labelled]

    def __len__(self):
        return len(self.targets)

    def image(self, i):
        img = Image.open(os.path.join(self.folder, f"{i:05d}.png")).rotate(float(torch.rand(())) * 30)
        time.sleep(0.002)
        return torch.from_numpy(np.asarray(img.resize((32, 32)), np.float32) / 255)[None]

    def __getitem__(self, i):
        return self.image(i), int(self.targets[i]), i

    def adopt(self, index, label):
        self.targets[index] = label


class Net(nn.Module):
    def __init__(self, kinds):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(1, 32, 3, 1), nn.ReLU(), nn.Conv2d(32, 48, 3, 2), nn.ReLU(), nn.Conv2d(48, 48, 3, 2),
                               nn.ReLU(), nn.Flatten(), nn.Linear(48 * 36, kinds))

    def forward(self, x):
        return self.f(x)


class SelfTraining:
    def __init__(self, model, data, pool, args):
        self.model, self.data = model, data
        self.loader = DataLoader(data, args.batch, shuffle=True, num_workers=args.workers, persistent_workers=True)
        self.pool_loader = DataLoader(Subset(data, pool), 50, num_workers=0)
        self.opt = torch.optim.Adam(model.parameters(), 2e-3)
        self.threshold = args.threshold

    def train_round(self):
        total = used = 0
        for x, y, _ in self.loader:
            known = y != Plankton.UNKNOWN
            if not known.any():
                continue
            loss = nn.functional.cross_entropy(self.model(x[known]), y[known])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item() * int(known.sum())
            used += int(known.sum())
        return total / used

    @torch.no_grad()
    def label_pool(self):
        adopted = 0
        for x, _, index in self.pool_loader:
            conf, label = self.model(x).softmax(1).max(1)
            sure = conf > self.threshold
            self.data.adopt(index[sure].numpy(), label[sure].numpy())
            adopted += int(sure.sum())
        return adopted


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--batch", type=int, default=25)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--threshold", type=float, default=0.4)
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="plankton_") as folder:
        truth = specimens(folder, 360, 4)
        order = np.random.default_rng(1).permutation(360)
        data = Plankton(folder, truth, order[:200])
        trainer = SelfTraining(Net(4), data, order[200:].tolist(), args)
        for r in range(args.rounds):
            loss = trainer.train_round()
            print(f"round {r} loss {loss:.4f} pool labelled {trainer.label_pool()} of 160", flush=True)


if __name__ == "__main__":
    main()
