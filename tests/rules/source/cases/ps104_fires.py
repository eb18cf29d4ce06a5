# ruff: noqa
import torch
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __init__(self):
        self.generator = torch.Generator().manual_seed(0)  # finds PS104

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.zeros(3)


if __name__ == "__main__":
    DataLoader(Noise(), num_workers=2, multiprocessing_context="forkserver")
