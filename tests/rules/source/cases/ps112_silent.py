# ruff: noqa
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(8)


class Rows(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.zeros(3)


def prepare(worker):
    torch.set_num_threads(1)


def prepare_fresh(worker):
    torch.set_num_threads(8)


if __name__ == "__main__":
    DataLoader(Rows(), num_workers=2, worker_init_fn=prepare)
    DataLoader(Rows(), num_workers=2, worker_init_fn=prepare_fresh, multiprocessing_context="spawn")
