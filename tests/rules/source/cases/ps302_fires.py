# ruff: noqa
import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, random_split


class Augmented(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)  # finds PS302
        self.coin = random.Random(7)  # finds PS302
        self.generator = torch.Generator()  # finds PS302

    def __len__(self):
        return 10

    def __getitem__(self, index):
        flip = self.coin.random() < 0.5
        return self.shifted(index), flip, torch.rand(3, generator=self.generator)

    def shifted(self, index):
        return index + self.rng.normal()


class Flip:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)  # finds PS302

    def __call__(self, image):
        return image if self.rng.random() < 0.5 else -image


class Flipped(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __getitem__(self, index):
        return self.transform(index)


DataLoader(Flipped(Flip(0)), num_workers=2)
train, rest = random_split(Augmented(), [8, 2])
DataLoader(train, num_workers=2)
