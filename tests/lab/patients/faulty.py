"""Sample 5 is bad in one way or another: `python faulty.py HOW WORKERS`."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Faulty(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 5:
            return self.bad()
        return {"x": torch.zeros(3), "y": 1}

    def bad(self):
        how = sys.argv[1]
        if how == "raises":
            raise KeyError("five")
        if how == "stops":
            raise StopIteration
        if how == "none":
            return None
        if how == "generator":
            return {"x": (each for each in "ab"), "y": 1}
        return {"x": torch.zeros(4), "y": 1}


def same(samples):
    return samples


def init(worker_id):
    if sys.argv[1] == "init":
        raise ValueError("not this worker")


if __name__ == "__main__":
    workers = int(sys.argv[2])
    loader = DataLoader(
        Faulty(),
        batch_size=4,
        num_workers=workers,
        worker_init_fn=init,
        collate_fn=same if sys.argv[1] == "generator" else None,
        timeout=20 if sys.argv[1] == "generator" else 0,  # its batch never comes
    )
    for number, _ in enumerate(loader):
        print("batch", number)
