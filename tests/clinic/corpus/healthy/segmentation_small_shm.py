# limits: shm=64M
"""The same tiles as bytes, which fit."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tiles(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        image = rng.integers(0, 255, (3, 128, 128), dtype=np.uint8)
        return torch.from_numpy(image), index % 2


if __name__ == "__main__":
    loader = DataLoader(Tiles(), batch_size=8, shuffle=True, num_workers=2)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    for epoch in range(2):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(net(images.float() / 255), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        print(epoch, loss.item())
