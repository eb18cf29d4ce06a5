# ruff: noqa
from torch.utils.data import DataLoader, Dataset


class Odd(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index == 0:
            return {"parts": (part for part in range(3))}  # finds PS803
        return index, open("x"), lambda: index  # finds PS803, PS803


loader = DataLoader(Odd(), num_workers=2)
