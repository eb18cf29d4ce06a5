"""Tumour grading on small histology crops, with flips and stain jitter."""
import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class Crops(Dataset):
    def __init__(self, n, side, train=True):
        rng = np.random.RandomState(3)
        self.images = rng.randint(0, 255, (n, side, side, 3), dtype=np.uint8)
        self.grades = rng.randint(0, 4, n)
        self.train = train

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i].astype(np.float32) / 255.0
        if self.train:
            if np.random.rand() < 0.5:
                image = image[:, ::-1]
            image = image * np.random.uniform(0.8, 1.2, size=3).astype(np.float32)
            noise = np.random.normal(0, 0.02, image.shape).astype(np.float32)
            for _ in range(12):
                noise = 0.5 * noise + 0.25 * np.roll(noise, 1, 0) + 0.25 * np.roll(noise, 1, 1)
            image = image + noise
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))), int(self.grades[i])


def seed_worker(worker_id):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(1234)
    full = Crops(1200, 64)
    train, _ = random_split(full, [1000, 200], generator=torch.Generator().manual_seed(0))
    loader = DataLoader(train, 20, shuffle=True, num_workers=args.workers, worker_init_fn=seed_worker)
    net = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4))
    opt = torch.optim.SGD(net.parameters(), 0.01)
    for epoch in range(args.epochs):
        losses = []
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        print(epoch, np.mean(losses))


if __name__ == "__main__":
    main()
