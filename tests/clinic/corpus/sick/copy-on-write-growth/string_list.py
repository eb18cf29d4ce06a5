# cause: copy-on-write-growth
"""Millions of small Python objects in a list."""

import torch
from torch.utils.data import DataLoader, Dataset


class Corpus(Dataset):
    def __init__(self, count):
        self.lines = [f"sentence number {i} of the corpus, with some words" for i in range(count)]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        line = self.lines[i]
        return len(line), hash(line) % 1000


def main():
    loader = DataLoader(Corpus(3_000_000), batch_size=4096, shuffle=True, num_workers=4)
    total = 0
    for epoch in range(2):
        for lengths, hashes in loader:
            total += int(lengths.sum())
        print(epoch, total)


if __name__ == "__main__":
    main()
