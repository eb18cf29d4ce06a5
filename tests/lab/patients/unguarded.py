"""Starts workers by spawn, without a guard."""

import torch
from torch.utils.data import DataLoader, Dataset


class Zeros(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.zeros(2)


loader = DataLoader(Zeros(), batch_size=4, num_workers=1, multiprocessing_context="spawn")
for batch in loader:
    print(batch.shape)
