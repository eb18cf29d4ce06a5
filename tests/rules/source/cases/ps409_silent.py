# ruff: noqa
import multiprocessing as mp
import threading

from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.lock = mp.Lock()
        self.count = mp.Value("i", 0)
        self.threads = threading.Lock()

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with self.lock:
            self.count.value += 1
        with self.threads:
            return open(self.paths[index], "rb").read()


loader = DataLoader(Files(["a"]), num_workers=4)
