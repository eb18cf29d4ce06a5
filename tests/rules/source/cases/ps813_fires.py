# ruff: noqa
import socket
from urllib.request import urlopen

import requests
from torch.utils.data import DataLoader, Dataset


class Remote(Dataset):
    def __init__(self, urls):
        self.urls = urls
        self.session = requests.Session()

    def __len__(self):
        return len(self.urls)

    def __getitem__(self, index):
        self.session.get(self.urls[index])  # finds PS813
        urlopen(self.urls[index])  # finds PS813
        socket.create_connection(("localhost", 80))  # finds PS813
        return requests.get(self.urls[index]).content  # finds PS813


loader = DataLoader(Remote(["a"]), num_workers=2)
