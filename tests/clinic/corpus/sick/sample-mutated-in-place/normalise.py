# cause: sample-mutated-in-place
"""Samples are normalised in place, again and again."""

import torch
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    def __init__(self):
        self.signals = torch.arange(1, 2001, dtype=torch.float32).view(100, 20)

    def __len__(self):
        return 100

    def __getitem__(self, i):
        signal = self.signals[i]
        signal /= 2
        signal += 1
        return signal


def main():
    loader = DataLoader(Signals(), batch_size=10, num_workers=2, persistent_workers=True)
    for epoch in range(4):
        mean = sum(batch.mean().item() for batch in loader) / 10
        print("epoch", epoch, "mean", mean)


if __name__ == "__main__":
    main()
