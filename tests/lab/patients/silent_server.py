"""A worker reads from a server that never answers."""

import socket

import torch
from torch.utils.data import DataLoader, Dataset

SERVER = socket.create_server(("127.0.0.1", 0))


class Remote(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 13:
            with socket.create_connection(SERVER.getsockname()) as connection:
                connection.recv(10)
        return torch.ones(4)


if __name__ == "__main__":
    for _batch in DataLoader(Remote(), batch_size=4, num_workers=2):
        pass
