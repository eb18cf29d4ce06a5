"""A thread holds a lock while workers are forked: they wait for it for ever."""

import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

LOCK = threading.Lock()


def refresh():
    while True:
        with LOCK:
            time.sleep(0.2)


class Guarded(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        with LOCK:
            return torch.ones(4) * index


if __name__ == "__main__":
    threading.Thread(target=refresh, daemon=True).start()
    time.sleep(0.1)
    for _batch in DataLoader(Guarded(), batch_size=4, num_workers=2):
        pass
