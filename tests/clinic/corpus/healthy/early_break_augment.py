"""Random augmentation with the global generators, a fixed number of steps, an early break."""

import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Augmented(Dataset):
    def __init__(self):
        self.images = np.random.default_rng(0).random((500, 3, 32, 32), dtype=np.float32)

    def __len__(self):
        return 500

    def __getitem__(self, i):
        image = self.images[i]
        if random.random() < 0.5:
            image = image[:, :, ::-1]
        image = image + np.random.normal(0, 0.02, image.shape).astype(np.float32)
        return torch.from_numpy(np.ascontiguousarray(image)) * (0.8 + 0.4 * torch.rand(1)), i % 10


def main():
    loader = DataLoader(Augmented(), batch_size=25, shuffle=True, num_workers=2, drop_last=True)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10))
    opt = torch.optim.SGD(net.parameters(), 0.01)
    for epoch in range(3):
        for step, (x, y) in enumerate(loader):
            loss = torch.nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step == 12:
                break
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
