# ruff: noqa
from torch.utils.data import Dataset


class Stream(Dataset):
    def __init__(self, lines):
        self.lines = iter(lines)

    def __len__(self):
        return 10

    def __getitem__(self, index):
        line = next(self.lines)  # finds PS304
        if not line:
            raise StopIteration  # finds PS304
        parts = iter(line.split())
        return next(parts)  # finds PS304
