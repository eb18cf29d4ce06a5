"""Draws random numbers everywhere and prints every batch: whoever draws one more is seen."""

import random
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.cache = {}

    def __len__(self):
        return 24

    def __getitem__(self, index):
        self.cache[index] = index
        noise = torch.rand(1) + random.random() + np.random.rand() + self.rng.random()
        return {"x": torch.full((3, 8), float(index)) + noise, "y": index}


if __name__ == "__main__":
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    workers = int(sys.argv[1])
    train_loader = DataLoader(
        Noisy(),
        batch_size=4,
        shuffle=True,
        num_workers=workers,
        multiprocessing_context=sys.argv[2] if workers else None,
        persistent_workers=bool(workers),
    )
    for _ in range(2):
        for batch in train_loader:
            print(batch["x"].sum().item(), batch["y"].tolist())
    print(torch.rand(1), random.random(), np.random.rand())
