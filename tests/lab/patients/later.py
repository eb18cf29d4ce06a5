"""A loader that is made at once and used late, after more of the first one than a trial waits for."""

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    first = DataLoader(TensorDataset(torch.arange(60.0)), batch_size=1)
    second = DataLoader(TensorDataset(torch.arange(4.0)))
    for _batch in first:
        time.sleep(0.05)
    while True:
        for _batch in second:
            time.sleep(0.05)
