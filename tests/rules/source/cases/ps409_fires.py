# ruff: noqa
import multiprocessing as mp

from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.lock = mp.Lock()

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with self.lock:  # finds PS409
            with open(self.paths[index], "rb") as file:
                return file.read()


loader = DataLoader(Files(["a"]), num_workers=4)
