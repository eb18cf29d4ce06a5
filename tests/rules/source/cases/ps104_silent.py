# ruff: noqa
import torch
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __init__(self):
        self.generator = torch.Generator().manual_seed(0)

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.zeros(3)


class Careful(Noise):
    def __getstate__(self):
        return {"seed": 0}


if __name__ == "__main__":
    DataLoader(Noise(), num_workers=2)
    DataLoader(Careful(), num_workers=2, multiprocessing_context="spawn")
    DataLoader([1, 2], num_workers=2, multiprocessing_context="spawn", generator=torch.Generator())
