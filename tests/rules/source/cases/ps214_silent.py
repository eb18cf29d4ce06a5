# ruff: noqa
from torch.utils.data import DataLoader, Dataset


class Bounded(Dataset):
    def __init__(self):
        self.cache = {}
        self.labels = {"cat": 0}

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if len(self.cache) > 100:
            self.cache.clear()
        self.cache[index] = index * 2
        return self.labels["cat"]


loader = DataLoader(Bounded(), num_workers=2)
