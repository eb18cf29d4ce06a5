# cause: too-few-workers, storage-bound
"""One worker waits for every read."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Objects(Dataset):
    def __len__(self):
        return 600

    def __getitem__(self, i):
        time.sleep(0.01)  # latency of an object store
        return torch.full((32,), float(i))


def main():
    loader = DataLoader(Objects(), batch_size=20, shuffle=True, num_workers=1)
    model = torch.nn.Linear(32, 1)
    for epoch in range(3):
        for batch in loader:
            model(batch).mean().backward()
        print(epoch)


if __name__ == "__main__":
    main()
