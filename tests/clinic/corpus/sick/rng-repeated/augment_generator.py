# cause: rng-repeated
"""Augmentation draws from a numpy Generator that the dataset owns."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self, count, seed=0):
        self.rng = np.random.default_rng(seed)
        self.clean = np.zeros((count, 32), dtype=np.float32)

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, i):
        noise = self.rng.normal(0, 0.1, 32).astype(np.float32)
        return torch.from_numpy(self.clean[i] + noise)


def main():
    loader = DataLoader(Noisy(320), batch_size=16, shuffle=True, num_workers=4)
    model = torch.nn.Linear(32, 32)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(3):
        for batch in loader:
            loss = (model(batch) - batch).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
