"""Each sample leaves a piece of shared memory open until the consumer has seen it, which is never."""

import sys
from multiprocessing import shared_memory

import torch
from torch.utils.data import DataLoader, Dataset


class Shared(Dataset):
    def __len__(self):
        return 10000

    def __getitem__(self, index):
        made = shared_memory.SharedMemory(create=True, size=1000)
        print(made.name, file=sys.stderr, flush=True)
        made.close()
        return torch.ones(4)


if __name__ == "__main__":
    for _batch in DataLoader(Shared(), batch_size=4, num_workers=2):
        pass
