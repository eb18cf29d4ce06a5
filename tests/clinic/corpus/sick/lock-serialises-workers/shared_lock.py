# cause: lock-serialises-workers
"""Reads are guarded by a lock, as somebody advised."""

import multiprocessing
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Guarded(Dataset):
    def __init__(self):
        self.lock = multiprocessing.Lock()

    def __len__(self):
        return 400

    def __getitem__(self, i):
        with self.lock:
            time.sleep(0.008)  # a read from network storage
            return torch.full((10,), float(i))


def main():
    loader = DataLoader(Guarded(), batch_size=10, num_workers=4)
    model = torch.nn.Linear(10, 1)
    for epoch in range(2):
        for batch in loader:
            model(batch).mean().backward()
        print(epoch)


if __name__ == "__main__":
    main()
