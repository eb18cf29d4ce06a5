# cause: tensor-freed-while-pickling
"""Each dataset draws its crops from its own torch.Generator, for repeatability."""

import torch
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self):
        return 128

    def __getitem__(self, index):
        top, left = torch.randint(0, 8, (2,), generator=self.generator).tolist()
        return torch.full((3, 24, 24), float(index))[:, top : top + 16, left : left + 16].clone()


if __name__ == "__main__":
    loader = DataLoader(Crops(7), batch_size=16, num_workers=2, multiprocessing_context="spawn")
    net = torch.nn.Conv2d(3, 4, 3)
    for epoch in range(2):
        for batch in loader:
            net(batch).mean().backward()
        print("epoch", epoch)
