# ruff: noqa
import torch
from torch.utils.data import Dataset


class Scaled(Dataset):
    def __init__(self, labels):
        self.data = torch.rand(10, 3)
        self.labels = labels
        self.seen = torch.zeros(10, 3)

    def __len__(self):
        return 10

    def __getitem__(self, index):
        x = self.data[index].clone()
        x.mul_(2)
        y = self.data[index] * 2
        y += 1
        label = self.labels[index]
        label += 1
        seen = self.seen[index]
        seen += 1
        return x, y, label
