# ruff: noqa
from torch.utils.data import DataLoader, Dataset


class Cached(Dataset):
    def __init__(self):
        self.count, self.cache = 10, {}

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index not in self.cache:
            self.cache[index] = index * 2  # finds PS214
        return self.cache[index]


loader = DataLoader(Cached(), num_workers=2)
