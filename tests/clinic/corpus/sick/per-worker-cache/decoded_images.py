# cause: per-worker-cache
"""Decoded images are remembered, by every worker."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Cached(Dataset):
    def __init__(self, count):
        self.count, self.decoded = count, {}

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if i not in self.decoded:
            self.decoded[i] = np.random.default_rng(i).random((3, 160, 160), dtype=np.float32)
        return torch.from_numpy(self.decoded[i])


def main():
    loader = DataLoader(Cached(2400), batch_size=16, shuffle=True, num_workers=4, persistent_workers=True)
    for epoch in range(3):
        for batch in loader:
            batch.mean()
        print("epoch", epoch)


if __name__ == "__main__":
    main()
