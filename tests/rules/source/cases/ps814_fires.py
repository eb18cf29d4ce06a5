# ruff: noqa
import multiprocessing

from torch.utils.data import DataLoader, Dataset


class Outer(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        with multiprocessing.Pool(2) as pool:  # finds PS814
            pool.map(abs, [index])
        for batch in DataLoader([1, 2], num_workers=1):  # finds PS814
            print(batch)
        return index


loader = DataLoader(Outer(), num_workers=2)
