# ruff: noqa
import sys

from torch.utils.data import DataLoader, Dataset


class Strict(Dataset):
    def __init__(self, path):
        if not path:
            sys.exit("a path is needed")

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index


loader = DataLoader(Strict("x"), num_workers=2)
if len(loader) == 0:
    sys.exit(1)
