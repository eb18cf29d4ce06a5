# cause: blocking-io
"""Features come from a service that stops answering."""

import socket
import threading

import torch
from torch.utils.data import DataLoader, Dataset


class Service(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.open = []

    def run(self):
        while True:
            client, _ = self.server.accept()
            request = client.recv(16)
            if int(request or b"0") % 45 != 44:
                client.sendall(b"1.5")
                client.close()
            else:
                self.open.append(client)


class Remote(Dataset):
    def __init__(self, port):
        self.port = port

    def __len__(self):
        return 90

    def __getitem__(self, i):
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(str(i).encode())
            return torch.tensor([float(connection.recv(16))])


def main():
    service = Service()
    service.start()
    loader = DataLoader(Remote(service.port), batch_size=5, num_workers=2)
    for epoch in range(2):
        for batch in loader:
            batch.mean()
        print(epoch)


if __name__ == "__main__":
    main()
