"""Stuck in one way or another: the argument says which."""

import concurrent.futures
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

HOW = sys.argv[1]
POOL = concurrent.futures.ThreadPoolExecutor(2)
POOL.submit(len, "ab").result()
READY = threading.Event()


def block():
    if HOW == "pool":  # its threads have not come through the fork
        POOL.submit(len, "abc").result()
    if HOW == "event":
        READY.wait()
    if HOW == "polls":
        while not READY.is_set():
            time.sleep(0.01)
    if HOW == "sleeps":
        time.sleep(100000)


class Stuck(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 13:
            block()
        return torch.ones(4)


if __name__ == "__main__":
    for _batch in DataLoader(Stuck(), batch_size=4, num_workers=int(sys.argv[2])):
        pass
