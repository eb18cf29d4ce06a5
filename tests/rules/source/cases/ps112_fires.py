# ruff: noqa
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        torch.set_num_threads(4)  # finds PS112
        return torch.zeros(3)


def prepare(worker):
    torch.set_num_threads(8)  # finds PS112


loader = DataLoader(Rows(), num_workers=2, worker_init_fn=prepare)
