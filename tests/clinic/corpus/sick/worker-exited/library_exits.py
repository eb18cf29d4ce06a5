# cause: worker-exited
"""A licence check that ends the process."""

import os

import torch
from torch.utils.data import DataLoader, Dataset


def read_volume(i):
    if i == 40:
        os._exit(3)
    return torch.zeros(8, 8, 8)


class Volumes(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return read_volume(i)


if __name__ == "__main__":
    for epoch in range(2):
        for batch in DataLoader(Volumes(), batch_size=4, num_workers=2):
            batch.sum()
        print("epoch", epoch)
