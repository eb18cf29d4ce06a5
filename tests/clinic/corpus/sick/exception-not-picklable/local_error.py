# cause: exception-not-picklable
"""Audio clips; a decoding error carries its own type."""

import torch
from torch.utils.data import DataLoader, Dataset


def decoder():
    class BadClip(Exception):
        pass

    def decode(i):
        if i == 37:
            raise BadClip(f"clip {i} has no header")
        return torch.sin(torch.arange(400) * (i + 1) / 100)

    return decode


class Clips(Dataset):
    def __init__(self):
        self.decode = decoder()

    def __len__(self):
        return 96

    def __getitem__(self, i):
        return self.decode(i)


if __name__ == "__main__":
    loader = DataLoader(Clips(), batch_size=8, num_workers=2)
    for epoch in range(2):
        for batch in loader:
            batch.pow(2).mean()
        print("epoch", epoch)
