# cause: socket-path-too-long
# limits: tmpdir=long
"""A batch system with a very long scratch directory."""

import torch
from torch.utils.data import DataLoader, Dataset


class Vectors(Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, i):
        return torch.randn(64), i % 8


if __name__ == "__main__":
    model = torch.nn.Linear(64, 8)
    for epoch in range(2):
        for x, y in DataLoader(Vectors(), batch_size=16, num_workers=2):
            torch.nn.functional.cross_entropy(model(x), y).backward()
        print(epoch)
