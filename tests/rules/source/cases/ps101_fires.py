# ruff: noqa
import threading

import h5py
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, path, transform=None):
        self.file = h5py.File(path)  # finds PS101
        self.lock = threading.Lock()  # finds PS101
        self.scale = lambda image: image / 255  # finds PS101
        self.names = (name for name in self.file)  # finds PS101
        self.transform = transform

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return self.scale(self.file["x"][index])


def main():
    def collate(batch):  # finds PS101
        return batch

    class Local(Dataset):  # finds PS101
        def __getitem__(self, index):
            return index

    images = Images("images.h5", transform=lambda image: image * 2)  # finds PS101
    DataLoader(images, num_workers=2, multiprocessing_context="spawn", collate_fn=collate)
    quiet = lambda number: None  # finds PS101
    DataLoader(Local(), num_workers=2, multiprocessing_context="forkserver", worker_init_fn=quiet)
