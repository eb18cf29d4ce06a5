# ruff: noqa
import threading

from torch.utils.data import DataLoader, Dataset

REFRESH = threading.Lock()


class Cached(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        with REFRESH:  # finds PS111
            return index


class Store:
    def __init__(self):
        self.guard = threading.Lock()
        threading.Thread(target=self.keep_fresh).start()

    def keep_fresh(self):
        with self.guard:
            pass

    def lookup(self, index):
        with self.guard:  # finds PS111
            return index


class Users(Dataset):
    def __init__(self):
        self.store = Store()

    def __getitem__(self, index):
        return self.store.lookup(index)


class Archive:
    def __init__(self):
        self.guard = threading.RLock()

    def digest(self):
        with self.guard:
            pass

    def read(self, index):
        with self.guard:  # finds PS111
            return index


class Keeper(threading.Thread):
    def __init__(self, archive):
        super().__init__(daemon=True)
        self.archive = archive

    def run(self):
        while True:
            self.archive.digest()


class Sheets(Dataset):
    def __init__(self, archive):
        self.archive = archive

    def __getitem__(self, index):
        return self.archive.read(index)


archive = Archive()
Keeper(archive).start()
sheets = DataLoader(Sheets(archive), num_workers=2)


def refresh():
    while True:
        with REFRESH:
            pass


threading.Thread(target=refresh, daemon=True).start()
loader = DataLoader(Cached(), num_workers=2)
