# ruff: noqa
import itertools

from torch.utils.data import Dataset, IterableDataset


class Stream(Dataset):
    def __init__(self, lines):
        self.lines = iter(lines)
        self.circle = itertools.cycle(lines)

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index >= len(self):
            raise StopIteration
        try:
            return next(self.lines)
        except StopIteration:
            self.lines = iter([])
        return next(self.circle), next(self.lines, None), next(iter({index: 1}))


class Endless(IterableDataset):
    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration
