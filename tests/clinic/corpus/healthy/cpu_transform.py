"""Workers earn their keep: an expensive transform."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Filtered(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        image = np.random.default_rng(i).random((96, 96))
        for _ in range(6):
            image = np.real(np.fft.ifft2(np.fft.fft2(image) * 0.99))
        return torch.from_numpy(image.astype(np.float32)), i % 10


def main():
    train = DataLoader(Filtered(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(96 * 96, 10))
    opt = torch.optim.SGD(net.parameters(), 0.01)
    for epoch in range(3):
        for x, y in train:
            loss = torch.nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
