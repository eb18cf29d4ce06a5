"""The worker that loads sample 13 dies: how, the argument says."""

import ctypes
import os
import signal
import sys

import torch
from torch.utils.data import DataLoader, Dataset

HOW = sys.argv[1]


def die():
    if HOW == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if HOW == "exit":
        os._exit(3)
    if HOW == "exit0":
        os._exit(0)
    ctypes.string_at(0)


class Fatal(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 13:
            die()
        return torch.ones(4)


if __name__ == "__main__":
    for _batch in DataLoader(Fatal(), batch_size=4, num_workers=2):
        pass
