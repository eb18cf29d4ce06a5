# ruff: noqa
from concurrent.futures import ThreadPoolExecutor

from torch.utils.data import DataLoader, Dataset


class Outer(Dataset):
    def __init__(self):
        self.inner = DataLoader([1, 2], num_workers=2)

    def __len__(self):
        return 10

    def __getitem__(self, index):
        with ThreadPoolExecutor(2) as pool:
            pool.map(abs, [index])
        for batch in DataLoader([1, 2], num_workers=0):
            print(batch)
        return index


class Alone(Dataset):
    def __getitem__(self, index):
        return list(DataLoader([1, 2], num_workers=2))


loader = DataLoader(Outer(), num_workers=2)
alone = DataLoader(Alone())
