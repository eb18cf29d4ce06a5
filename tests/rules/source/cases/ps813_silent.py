# ruff: noqa
import socket
from urllib.request import urlopen

import requests
from torch.utils.data import DataLoader, Dataset


class Remote(Dataset):
    def __init__(self, urls):
        self.urls = urls
        self.session = requests.Session()
        self.listing = requests.get("http://localhost").text

    def __len__(self):
        return len(self.urls)

    def __getitem__(self, index):
        self.session.get(self.urls[index], timeout=5)
        urlopen(self.urls[index], None, 5)
        socket.create_connection(("localhost", 80), 5)
        connection = socket.create_connection(("localhost", 80))
        connection.settimeout(5)
        return requests.get(self.urls[index], **{"timeout": 5}).content


loader = DataLoader(Remote(["a"]), num_workers=2)
