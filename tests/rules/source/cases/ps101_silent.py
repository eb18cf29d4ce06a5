# ruff: noqa
import functools
import multiprocessing

import h5py
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, path):
        self.path = path
        self.file = h5py.File(path)
        self.length = len(self.file)
        self.file = None
        self.lock = multiprocessing.Lock()
        self.names = sorted(["b", "a"], key=lambda name: name)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.file is None:
            self.file = h5py.File(self.path)
        return self.file["x"][index]


class Careful(Dataset):
    def __init__(self, path):
        self.file = open(path)

    def __getstate__(self):
        return {**self.__dict__, "file": None}

    def __getitem__(self, index):
        return index


def collate(batch, scale):
    return batch


def main(context):
    DataLoader(
        Images("x"),
        num_workers=2,
        multiprocessing_context="spawn",
        collate_fn=functools.partial(collate, scale=2),
    )
    DataLoader(Careful("x"), num_workers=2, multiprocessing_context="spawn")
    DataLoader(Images("x"), num_workers=2, collate_fn=lambda batch: batch)
    DataLoader(Images("x"), num_workers=2, multiprocessing_context="fork", collate_fn=lambda batch: batch)
    DataLoader(Images("x"), num_workers=2, multiprocessing_context=context, collate_fn=lambda batch: batch)
    DataLoader(Images("x"), num_workers=0, collate_fn=lambda batch: batch)
