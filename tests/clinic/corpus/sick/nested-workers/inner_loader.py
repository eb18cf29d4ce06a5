# cause: nested-workers
"""Each episode loads its own support set with workers of its own."""

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Episodes(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, i):
        support = DataLoader(TensorDataset(torch.full((12, 5), float(i))), batch_size=4, num_workers=1)
        return torch.stack([batch.mean(0) for (batch,) in support]).mean(0)


if __name__ == "__main__":
    for epoch in range(2):
        for batch in DataLoader(Episodes(), batch_size=4, num_workers=2):
            batch.sum()
        print(epoch)
