# ruff: noqa
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


def refresh():
    while True:
        with OTHER:
            pass


threading.Thread(target=refresh, daemon=True).start()
loader = DataLoader(Cached(), num_workers=2)
