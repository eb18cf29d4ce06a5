# cause: wrong-length
"""__len__ counts one window too many."""

import torch
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    def __init__(self):
        self.series = list(range(500))
        self.width = 20

    def __len__(self):
        return len(self.series) - self.width + 2

    def __getitem__(self, i):
        if i + self.width > len(self.series):
            raise IndexError(i)
        return torch.tensor(self.series[i : i + self.width], dtype=torch.float32)


def main():
    for epoch in range(2):
        for batch in DataLoader(Windows(), batch_size=32, num_workers=2):
            batch.mean()
        print(epoch)


if __name__ == "__main__":
    main()
