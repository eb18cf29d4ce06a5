# ruff: noqa
import torch
from torch.utils.data import Dataset


class Scaled(Dataset):
    def __init__(self):
        self.data = torch.rand(10, 3)
        self.rows = torch.arange(30.0).view(10, 3)
        self.more = [torch.ones(3) for _ in range(10)]

    def __len__(self):
        return 10

    def __getitem__(self, index):
        x = self.data[index]
        y = self.more[index]
        x.mul_(2)  # finds PS306
        y += 1  # finds PS306
        z = self.rows[index]
        z /= 2  # finds PS306
        return x, y, z
