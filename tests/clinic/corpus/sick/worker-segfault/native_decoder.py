# cause: worker-segfault
"""A native decoder that follows a bad pointer for one file."""

import ctypes

import torch
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __len__(self):
        return 120

    def __getitem__(self, i):
        if i == 66:
            ctypes.string_at(8)
        return torch.full((4, 4), float(i))


if __name__ == "__main__":
    loader = DataLoader(Frames(), batch_size=8, num_workers=2)
    total = 0.0
    for epoch in range(2):
        for batch in loader:
            total += batch.sum().item()
    print(total)
