# cause: straggler-samples
"""A few documents take very long to parse."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Documents(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, i):
        time.sleep(0.6 if i % 80 == 3 else 0.004)
        return torch.full((16,), float(i))


def main():
    loader = DataLoader(Documents(), batch_size=5, num_workers=4)
    model = torch.nn.Linear(16, 1)
    for epoch in range(3):
        for batch in loader:
            model(batch).mean().backward()
            time.sleep(0.012)
        print(epoch)


if __name__ == "__main__":
    main()
