# cause: bad-sample
"""One clip is longer than the others."""

import torch
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self):
        self.lengths = [400] * 100
        self.lengths[71] = 401

    def __len__(self):
        return 100

    def __getitem__(self, i):
        return {"wave": torch.zeros(self.lengths[i]), "speaker": i % 7}


def main():
    loader = DataLoader(Clips(), batch_size=10, shuffle=True, num_workers=2)
    for epoch in range(2):
        for batch in loader:
            batch["wave"].mean()
        print(epoch)


if __name__ == "__main__":
    main()
