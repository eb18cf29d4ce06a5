# cause: bad-sample
"""Unreadable images are answered with None."""

import torch
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, i):
        try:
            if i % 53 == 52:
                raise OSError("truncated file")
            return torch.full((3, 8, 8), float(i)), i % 4
        except OSError as error:
            print("skipping", i, error)
            return None


if __name__ == "__main__":
    loader = DataLoader(Pictures(), batch_size=16, num_workers=2)
    net = torch.nn.Linear(192, 4)
    for images, labels in loader:
        torch.nn.functional.cross_entropy(net(images.flatten(1)), labels).backward()
