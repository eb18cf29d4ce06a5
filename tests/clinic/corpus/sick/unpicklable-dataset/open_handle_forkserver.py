# cause: unpicklable-dataset
"""A fixed-record file, opened once in the constructor; workers by forkserver."""

import os
import tempfile

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

RECORD = 64


class Records(Dataset):
    def __init__(self, path):
        self.path = path
        self.file = open(path, "rb")
        self.count = os.path.getsize(path) // (RECORD * 4)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.file.seek(index * RECORD * 4)
        return torch.from_numpy(np.frombuffer(self.file.read(RECORD * 4), np.float32).copy())


def main():
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "data.bin")
    np.random.default_rng(0).random((300, RECORD), dtype=np.float32).tofile(path)
    loader = DataLoader(Records(path), batch_size=10, num_workers=2, multiprocessing_context="forkserver")
    total = 0.0
    for batch in loader:
        total += batch.sum().item()
    print(total)


if __name__ == "__main__":
    main()
