# cause: view-of-large-storage
# limits: shm=256M
"""Windows that are views of one long recording."""

import torch
from torch.utils.data import DataLoader, Dataset


class Recording(Dataset):
    def __init__(self):
        self.channels = torch.randn(64, 500_000)

    def __len__(self):
        return 320

    def __getitem__(self, i):
        return {"window": self.channels[i % 64, i * 100 : i * 100 + 400], "label": i % 3}


def keep(samples):
    return [s["window"] for s in samples], [s["label"] for s in samples]


def main():
    loader = DataLoader(Recording(), batch_size=16, num_workers=2, collate_fn=keep)
    for epoch in range(2):
        for windows, labels in loader:
            torch.stack(windows).mean()
        print("epoch", epoch)


if __name__ == "__main__":
    main()
