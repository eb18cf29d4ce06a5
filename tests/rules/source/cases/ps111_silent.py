# ruff: noqa
import queue
import threading

from torch.utils.data import DataLoader, Dataset

REFRESH = threading.Lock()
OTHER = threading.Lock()


class Cached(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        with REFRESH:
            return index


class Store:
    def __init__(self):
        self.guard = threading.Lock()
        self.other = threading.Lock()
        threading.Thread(target=self.keep_fresh).start()

    def keep_fresh(self):
        with self.other:
            pass

    def lookup(self, index):
        with self.guard:
            return index


class Users(Dataset):
    def __init__(self):
        self.store = Store()

    def __getitem__(self, index):
        return self.store.lookup(index)


class Cache:
    def __init__(self):
        self.guard = threading.RLock()

    def get(self, index):
        with self.guard:
            return index


class Uploader(threading.Thread):
    def __init__(self, waiting):
        super().__init__(daemon=True)
        self.waiting = waiting

    def run(self):
        while True:
            self.waiting.get()


class Sheets(Dataset):
    def __init__(self, cache):
        self.cache = cache

    def __getitem__(self, index):
        return self.cache.get(index)


Uploader(queue.Queue()).start()
sheets = DataLoader(Sheets(Cache()), num_workers=2)


def refresh():
    while True:
        with OTHER:
            pass


threading.Thread(target=refresh, daemon=True).start()
loader = DataLoader(Cached(), num_workers=2)
