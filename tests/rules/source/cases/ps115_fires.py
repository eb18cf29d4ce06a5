# ruff: noqa
import zipfile
from pathlib import Path

import h5py
import lmdb
import soundfile as sf
from torch.utils import data


class Records(data.Dataset):
    def __init__(self, path):
        self.file = open(path, "rb")  # finds PS115
        self.archive = zipfile.ZipFile(path)  # finds PS115
        self.open_index(path)

    def open_index(self, path):
        self.index = Path(path).with_suffix(".idx").open("rb")  # finds PS115

    def __len__(self):
        return 10

    def __getitem__(self, number):
        self.file.seek(number * 8)
        self.index.seek(number)
        return self.file.read(8), self.archive.read(str(number)), self.index.read(1)


class Rows(data.Dataset):
    def __init__(self, path):
        self.env = lmdb.open(path, readonly=True)  # finds PS115

    def __getitem__(self, number):
        return self.fetch(number)

    def fetch(self, number):
        with self.env.begin() as transaction:
            return transaction.get(b"%d" % number)


class Parts(data.Dataset):
    def __init__(self, path):
        file = h5py.File(path)
        self.images = file["images"]  # finds PS115
        self.file = h5py.File(path)
        self.labels = self.file["labels"]  # finds PS115

    def __getitem__(self, number):
        return self.images[number], self.labels[number]


class Reader:
    def __init__(self, path):
        self.file = open(path, "rb")  # finds PS115

    def read(self, number):
        self.file.seek(number)
        return self.file.read(1)


class Through(data.Dataset):
    def __init__(self, path):
        self.reader = Reader(path)

    def __getitem__(self, number):
        return self.reader.read(number)


class Takes(data.Dataset):
    def __init__(self, path):
        self.recording = sf.SoundFile(path)  # finds PS115

    def __getitem__(self, number):
        self.recording.seek(number * 8)
        return self.recording.read(8)


def make(workers):
    return data.DataLoader(Records("records"), num_workers=workers)
