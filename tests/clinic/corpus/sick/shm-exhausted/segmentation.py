# cause: shm-exhausted
# limits: shm=64M
"""Train a small segmentation head on synthetic satellite tiles."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tiles(Dataset):
    def __init__(self, count, side):
        self.count, self.side = count, side

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        image = rng.random((4, self.side, self.side), dtype=np.float32)
        mask = (image.mean(0) > 0.5).astype(np.int64)
        return torch.from_numpy(image), torch.from_numpy(mask)


def train(options):
    loader = DataLoader(
        Tiles(96, 512), batch_size=8, shuffle=True, num_workers=options.workers, drop_last=True
    )
    net = nn.Conv2d(4, 2, 3, padding=1)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        for step, (images, masks) in enumerate(loader):
            loss = nn.functional.cross_entropy(net(images[:, :, ::8, ::8]), masks[:, ::8, ::8])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if step % 4 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    train(parser.parse_args())
