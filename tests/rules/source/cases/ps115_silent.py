# ruff: noqa
import multiprocessing
import os

import h5py
from torch.utils.data import DataLoader, Dataset


class Lazy(Dataset):
    def __init__(self, path):
        self.path = path
        self.file = None
        with open(path) as file:
            self.length = len(file.read())

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.file is None:
            self.file = open(self.path, "rb")
        self.file.seek(index)
        return self.file.read(1)


class Closed(Dataset):
    def __init__(self, path):
        self.file = h5py.File(path)
        self.images = self.file["images"][:]
        self.labels = self.file["labels"]
        self.file.close()
        file = h5py.File(path)
        self.masks = file["masks"][()]
        self.names = list(file["names"])

    def __getitem__(self, index):
        return self.images[index], self.file.name, self.masks[index], self.names[index]


class ByPlace(Dataset):
    def __init__(self, path):
        self.file = open(path, "rb")
        self.descriptor = os.open(path, os.O_RDONLY)

    def __getitem__(self, index):
        return os.pread(self.file.fileno(), 8, index * 8), os.pread(self.descriptor, 8, index * 8)


class Locked(Dataset):
    def __init__(self, path):
        self.file = open(path, "rb")
        self.lock = multiprocessing.Lock()

    def __getitem__(self, index):
        with self.lock:  # finds PS409
            self.file.seek(index)
            return self.file.read(8)


class Alone(Dataset):
    def __init__(self, path):
        self.file = open(path, "rb")

    def __getitem__(self, index):
        self.file.seek(index)
        return self.file.read(8)


class Writer:
    def __init__(self, path):
        self.file = open(path, "rb")

    def report(self):
        return self.file.read(1)

    def name(self):
        return "x"


class Writing(Dataset):
    def __init__(self, path):
        self.writer = Writer(path)

    def __getitem__(self, index):
        return self.writer.name()


class Text(Dataset):
    def __init__(self, path):
        self.text = open(path).read()

    def __getitem__(self, index):
        return self.text[index]


class Logged(Dataset):
    def __init__(self, path):
        self.log = open(path, "a")

    def __getitem__(self, index):
        return index


DataLoader(Lazy("x"), num_workers=4)
DataLoader(Closed("x"), num_workers=4)
DataLoader(ByPlace("x"), num_workers=4)
DataLoader(Alone("x"))
DataLoader(Text("x"), num_workers=4)
