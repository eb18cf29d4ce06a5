# ruff: noqa
import argparse

from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):  # finds PS301
        for path in self.paths:
            with open(path) as file:
                for line in file:
                    yield line.strip().split(";")


class Numbers(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):  # finds PS301
        return iter(range(self.count))


parser = argparse.ArgumentParser()
parser.add_argument("--num-workers", type=int, default=4)
args = parser.parse_args()
lines = Lines(["a"])
DataLoader(lines, batch_size=4, num_workers=args.num_workers)
DataLoader(Numbers(10), num_workers=2)
