# cause: stop-iteration-truncates
"""A map-style view of iterators that run dry."""

import torch
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __init__(self):
        self.sizes = [20] * 9 + [12]

    def __len__(self):
        return 200

    def __getitem__(self, i):
        shard, offset = divmod(i, 20)
        rows = iter(range(self.sizes[shard]))
        for _ in range(offset):
            next(rows)
        return torch.tensor(float(next(rows)))


def main():
    for epoch in range(2):
        seen = 0
        for batch in DataLoader(Shards(), batch_size=8, num_workers=2):
            seen += len(batch)
        print("epoch", epoch, "samples", seen)


if __name__ == "__main__":
    main()
